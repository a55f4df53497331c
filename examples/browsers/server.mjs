// The application's server: serves the page, and keeps the API key away from it. Node.js 18 or newer, no packages.
//
//   POSTHORN_SERVER=http://127.0.0.1:8080 POSTHORN_KEY=ph_… node server.mjs

import { readFile } from 'node:fs/promises';
import http from 'node:http';

const posthorn = process.env.POSTHORN_SERVER ?? 'http://127.0.0.1:8080';
const headers = {
  Authorization: `Bearer ${process.env.POSTHORN_KEY}`,
  'Content-Type': 'application/json',
};
const files = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/worker.js': ['worker.js', 'text/javascript; charset=utf-8'],
};

async function answer(request) {
  const [file, type] = files[request.url] ?? [];
  if (request.method === 'GET' && file) {
    return [200, type, await readFile(new URL(file, import.meta.url))];
  }
  if (request.method === 'GET' && request.url === '/push-key') {
    const key = await fetch(`${posthorn}/v1/push/key`, { headers });
    return [key.status, 'application/json', await key.text()];
  }
  if (request.method === 'POST' && request.url === '/subscribe') {
    let text = '';
    for await (const piece of request) text += piece;
    // These three lines are all there is to it. A real application also says which user is signed in.
    const destination = { ...JSON.parse(text), type: 'push', ttl: '1d', urgency: 'normal' };
    const body = JSON.stringify({ destination, filter: { any_of: [{ topics: ['orders'] }] } });
    const made = await fetch(`${posthorn}/v1/subscriptions`, { method: 'POST', headers, body });
    return [made.status, 'application/json', await made.text()];
  }
  return [404, 'text/plain', 'not found'];
}

const server = http.createServer((request, response) => {
  answer(request)
    .catch((error) => [502, 'text/plain', String(error)])
    .then(([status, type, body]) => {
      const length = Buffer.byteLength(body);
      response.writeHead(status, { 'Content-Type': type, 'Content-Length': length }).end(body);
    });
});
server.listen(Number(process.env.PORT ?? 8000), '127.0.0.1', () => {
  console.log(`http://localhost:${server.address().port}`);
});
