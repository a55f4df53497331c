// The same walk as walk.py with the published client for JavaScript, without the bulk and the polling. The folder with its packages, the server and a key are
// arguments.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , packages, server, key] = process.argv;
const load = createRequire(pathToFileURL(`${packages}/index.js`));
let library;
try {
  library = load("svix");
} catch {
  library = await import(pathToFileURL(`${packages}/node_modules/svix/dist/index.mjs`));
}
const { Svix, Webhook, ApiException } = library;

const received = [];
let failing = false;
const receiver = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    received.push({ path: request.url, headers: request.headers, body: Buffer.concat(parts).toString() });
    response.statusCode = failing ? 500 : 200;
    response.end("heard");
  });
});
await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
const here = `http://127.0.0.1:${receiver.address().port}`;

const until = async (what, check) => {
  for (let i = 0; i < 600; i++) {
    const found = await check();
    if (found) return found;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`waited in vain for ${what}`);
};
const refused = async (status, act) => {
  try {
    await act();
  } catch (error) {
    assert(error instanceof ApiException, `${error}`);
    assert.equal(error.code, status, JSON.stringify(error.body));
    return error.body;
  }
  throw new Error(`${status} was expected`);
};

// What replaces a thing as a whole, and some others, were given other names.
const named = (api, ...names) => api[names.find((name) => api[name])].bind(api);
const put = (api) => named(api, "upsert", "update");

const svix = new Svix(key, { serverUrl: server });
await svix.health.get();
const name = `js.${process.pid}`;
await svix.eventType.create({ name, description: "made by JavaScript", schemas: { 1: { examples: [{ a: 1 }] } } });
await refused(409, () => svix.eventType.create({ name, description: "again" }));
assert((await svix.eventType.list()).data.some((one) => one.name === name));
await put(svix.eventType)(name, { description: "other", schemas: { 1: { examples: [{ a: 1 }] } } });
assert.equal((await svix.eventType.patch(name, { deprecated: true })).deprecated, true);
assert.equal((await svix.eventType.get(name)).description, "other");
await svix.eventType.create({ name: `${name}.gone`, description: "soon" });
await svix.eventType.delete(`${name}.gone`);
const app = await svix.application.create({ name: "JavaScript", uid: `js-${process.pid}` });
assert.equal((await svix.application.getOrCreate({ name: "x", uid: app.uid })).id, app.id);
await refused(422, () => svix.application.create({ name: "" }));
assert.equal((await put(svix.application)(app.id, { name: "Other", uid: app.uid })).name, "Other");
assert.deepEqual((await svix.application.patch(app.id, { metadata: { c: "d" } })).metadata, { c: "d" });
assert((await svix.application.list()).data.some((one) => one.id === app.id));
const endpoint = await svix.endpoint.create(app.id, { url: `${here}/js`, metadata: { a: "b" } });
assert.deepEqual((await svix.endpoint.get(app.uid, endpoint.id)).metadata, { a: "b" });
assert.equal((await put(svix.endpoint)(app.id, endpoint.id, { url: `${here}/js`, uid: "js" })).uid, "js");
assert.equal((await svix.endpoint.patch(app.id, "js", { description: "d" })).description, "d");
assert.equal((await svix.endpoint.list(app.id)).data[0].id, endpoint.id);
await named(svix.endpoint, "setHeaders", "updateHeaders")(app.id, endpoint.id, { headers: { "x-team": "a", authorization: "hush" } });
await svix.endpoint.patchHeaders(app.id, endpoint.id, { headers: { "x-room": "b" } });
const headers = await svix.endpoint.getHeaders(app.id, endpoint.id);
assert.deepEqual([headers.headers, [...headers.sensitive]], [{ "x-room": "b", "x-team": "a" }, ["authorization"]]);
const secret = (await svix.endpoint.getSecret(app.id, endpoint.id)).key;

const sent = await svix.message.create(app.id, { eventType: name, payload: { id: 1, large: 9007199254740991 } });
const got = await until("the message", () => received[0]);
assert.equal(got.headers["svix-id"], sent.id);
// The newer client says nothing where the older one gives the payload back; both throw when it is not what was signed.
new Webhook(secret).verify(got.body, got.headers);
assert.throws(() => new Webhook(secret).verify(`${got.body} `, got.headers));
assert.equal(JSON.parse(got.body).id, 1);
assert.equal(got.headers.authorization, "hush");
const attempt = await until("its attempt", async () => (await svix.messageAttempt.listByMsg(app.id, sent.id)).data[0]);
assert.equal((await svix.messageAttempt.get(app.id, sent.id, attempt.id)).response, "heard");
assert.equal((await svix.messageAttempt.listAttemptedMessages(app.id, endpoint.id)).data[0].id, sent.id);
assert.equal((await svix.messageAttempt.listAttemptedDestinations(app.id, sent.id)).data[0].id, endpoint.id);
await svix.messageAttempt.expungeContent(app.id, sent.id, attempt.id);
assert.equal((await svix.message.get(app.id, sent.id)).id, sent.id);
await until("it in the statistics", async () => (await svix.endpoint.getStats(app.id, endpoint.id)).success === 1);
const example = await svix.endpoint.sendExample(app.id, endpoint.id, { eventType: name });
assert.equal(example.eventType, name);
// It must not be among what fails below.
await until("the example", () => received.some((one) => one.headers["svix-id"] === example.id));

failing = true;
const failed = await svix.message.create(app.id, { eventType: name, payload: { id: 2 } });
await until("a failure", async () =>
  (await svix.messageAttempt.listByEndpoint(app.id, endpoint.id, { status: 2 })).data.length >= 1);
failing = false;
await svix.messageAttempt.resend(app.id, failed.id, endpoint.id);
await until("it", () => received.filter((one) => one.headers["svix-id"] === failed.id).length >= 2);
const task = await svix.endpoint.recover(app.id, endpoint.id, { since: new Date(Date.now() - 60_000) });
await until("the task", async () => (await svix.backgroundTask.get(task.id)).status === "finished");

await svix.endpoint.rotateSecret(app.id, endpoint.id, {});
const newer = (await svix.endpoint.getSecret(app.id, endpoint.id)).key;
const both = await svix.message.create(app.id, { eventType: name, payload: { id: 3 } });
const signed = await until("it", () => received.find((one) => one.headers["svix-id"] === both.id));
for (const own of [secret, newer]) new Webhook(own).verify(signed.body, signed.headers);

for (let number = 0; number < 120; number++) {
  await svix.message.create(app.id, { eventType: name, payload: { number }, eventId: `own-${number}` });
}
const first = await svix.message.list(app.id, { limit: 50 });
const second = await svix.message.list(app.id, { limit: 50, iterator: first.iterator });
const back = await svix.message.list(app.id, { limit: 50, iterator: second.prevIterator });
assert.deepEqual(back.data.map((one) => one.id), first.data.map((one) => one.id));
await refused(409, () => svix.message.create(app.id, { eventType: name, payload: {}, eventId: "own-7" }));

const access = await svix.authentication.appPortalAccess(app.id, {});
const own = new Svix(access.token, { serverUrl: server });
assert.equal((await own.endpoint.list(app.id)).data.length, 1);
assert.equal((await refused(403, () => own.application.list())).code, "insufficient access");
await own.authentication.logout();
await refused(401, () => own.endpoint.list(app.id));
await refused(401, () => new Svix("ph_wrong", { serverUrl: server }).application.list());
const ops = svix.operationalWebhook?.endpoint ?? svix.operationalWebhookEndpoint;
const listens = await ops.create({ url: `${here}/ops` });
assert((await ops.list()).data.some((one) => one.id === listens.id));
await ops.delete(listens.id);
await svix.message.expungeContent(app.id, sent.id);
await svix.endpoint.delete(app.id, endpoint.id);
await svix.application.delete(app.id);
await refused(404, () => svix.application.get(app.id));
console.log("walked");
receiver.close();
receiver.closeAllConnections();
