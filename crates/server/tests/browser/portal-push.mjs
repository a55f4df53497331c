// A real Firefox gets messages from the portal: a customer opens a link, allows notifications with one click, and a message
// that is published is shown by the service worker. Firefox is driven by its own protocol (Marionette), so that nothing has
// to be installed besides the browser. It reaches loopback addresses only.
//
//   node portal-push.mjs URL KEY FOLDER
import { spawn } from "node:child_process";
import { createServer, connect } from "node:net";
import { mkdirSync, writeFileSync } from "node:fs";

const [base, key, folder] = process.argv.slice(2);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const freePort = () => new Promise((resolve) => { const server = createServer(); server.listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); }); });

const port = await freePort();
const prefs = {
  "marionette.port": port,
  // Those of automation switch push off.
  "remote.prefs.recommended": false,
  "dom.push.serverURL": base.replace("http", "ws") + "/",
  "dom.push.testing.allowInsecureServerURL": true,
  "permissions.default.desktop-notification": 1,
  "dom.webnotifications.requireuserinteraction": false,
  // Shown by itself: there is no desktop here that could.
  "alerts.useSystemBackend": false,
  // Everything but loopback goes to a proxy that is not there.
  "network.proxy.type": 1,
  "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
  "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9,
  "network.proxy.no_proxies_on": "localhost, 127.0.0.1",
  "browser.shell.checkDefaultBrowser": false, "datareporting.policy.dataSubmissionEnabled": false, "toolkit.telemetry.enabled": false,
  "app.update.enabled": false, "browser.safebrowsing.malware.enabled": false, "browser.safebrowsing.phishing.enabled": false,
};
mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}/user.js`, Object.entries(prefs).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`).join("\n"));
const firefox = spawn(process.env.FIREFOX || "firefox-esr", ["--headless", "--no-remote", "--marionette", "--profile", folder, "about:blank"], { stdio: "ignore", env: { ...process.env, MOZ_MARIONETTE_PREF_STATE_ACROSS_RESTARTS: "" } });
const end = (text, code = 1) => { console.log(text); firefox.kill("SIGKILL"); process.exit(code); };
setTimeout(() => end("it took too long"), 150000).unref();

// ---- Marionette: lengths and JSON over a socket ----
const dial = async () => {
  for (let tries = 0; tries < 300; tries += 1) {
    const socket = await new Promise((resolve) => { const one = connect(port, "127.0.0.1", () => resolve(one)); one.on("error", () => resolve(null)); });
    if (socket) return socket;
    await wait(200);
  }
  return end("Firefox does not listen");
};
const socket = await dial();
let heard = Buffer.alloc(0);
let number = 0;
const waiting = new Map();
socket.on("data", (bytes) => {
  heard = Buffer.concat([heard, bytes]);
  for (;;) {
    const colon = heard.indexOf(":");
    const length = Number(heard.subarray(0, colon));
    if (colon < 0 || heard.length < colon + 1 + length) return;
    const message = JSON.parse(heard.subarray(colon + 1, colon + 1 + length));
    heard = heard.subarray(colon + 1 + length);
    if (Array.isArray(message)) waiting.get(message[1])?.(message);
  }
});
const ask = (name, parameters = {}) => new Promise((resolve, refuse) => {
  number += 1;
  waiting.set(number, ([, , error, result]) => (error ? refuse(new Error(`${name}: ${error.message}`)) : resolve(result && "value" in result ? result.value : result)));
  const text = JSON.stringify([0, number, name, parameters]);
  socket.write(`${Buffer.byteLength(text)}:${text}`);
});
const run = (script, ...args) => ask("WebDriver:ExecuteAsyncScript", { script: `const done = arguments[arguments.length - 1]; (async (...args) => { ${script} })(...arguments).then(done, (error) => done(String(error)));`, args, scriptTimeout: 30000 });
const until = async (what, script) => {
  for (let tries = 0; tries < 150; tries += 1) {
    const answer = await run(script).catch(() => null);
    if (answer) return answer;
    await wait(200);
  }
  const page = await run("return location.href + ' ' + document.body.innerText;").catch(String);
  return end(`${what} did not come: ${page}`);
};
const api = async (method, path, body) => (await fetch(base + path, { method, headers: { authorization: `Bearer ${key}`, "posthorn-tenant": "acme", "content-type": "application/json" }, body: JSON.stringify(body) })).json();

try {
  await ask("WebDriver:NewSession", {});
  const link = await api("POST", "/v1/portal/links", { name: "Ann" });
  await ask("WebDriver:Navigate", { url: link.url });
  await until("the portal", "return location.pathname === '/portal/' && !!document.querySelector('form[data-push] button:not([hidden])');");
  const button = await ask("WebDriver:FindElement", { using: "css selector", value: "form[data-push] button" });
  await ask("WebDriver:ElementClick", { id: Object.values(button)[0] });
  const said = await until("the endpoint", "return location.pathname.startsWith('/portal/endpoints/sub_') && document.querySelector('.notice.good')?.textContent;");
  if (!/gets messages now/.test(said)) end(`the page says ${said}`);
  const title = await run("return document.querySelector('main').innerText;");
  if (!/A browser: Firefox/.test(title)) end(`the endpoint is ${title}`);
  const event = await api("POST", "/v1/events", { topic: "orders", type: "order.paid", payload: { title: "Order 7", text: "12.50 paid" } });
  const shown = await until("the notification", "const worker = await navigator.serviceWorker.getRegistration('/portal/'); const all = await worker.getNotifications(); return all.length && JSON.stringify(all.map((one) => [one.title, one.body, one.tag]));");
  const wanted = JSON.stringify([["Order 7", "12.50 paid", event.id]]);
  if (shown !== wanted) end(`shows ${shown}`);
  end("shown", 0);
} catch (error) {
  end(error.stack);
}
