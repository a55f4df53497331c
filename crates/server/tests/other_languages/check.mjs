// An application server of Web Push, made of a library that Posthorn did not write.
//
// One JSON object a line on stdin, one answer a line on stdout, in order. A question that cannot be
// answered is answered with its error, so that the test says which.

import { createRequire } from "node:module";
import http from "node:http";
import path from "node:path";
import readline from "node:readline";

const require = createRequire(path.join(process.argv[2], "package.json"));
const webPush = require("web-push");

// The library itself posts over TLS only; what it would post is posted here.
function send(q) {
  const { endpoint, method, headers, body } = webPush.generateRequestDetails(
    { endpoint: q.endpoint, keys: { p256dh: q.p256dh, auth: q.auth } },
    Buffer.from(q.text, "base64url"),
    {
      vapidDetails: {
        subject: "mailto:admin@example.com",
        publicKey: q.sender_public,
        privateKey: q.sender,
      },
      TTL: q.ttl,
      topic: q.topic ?? undefined,
      contentEncoding: q.encoding,
    },
  );
  return new Promise((resolve, reject) => {
    const request = http.request(endpoint, { method, headers, timeout: 30_000 }, (answer) => {
      answer.resume();
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers }));
    });
    request.on("error", reject);
    request.end(body);
  });
}

const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
for await (const line of lines) {
  let answer;
  try {
    answer = await send(JSON.parse(line));
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
