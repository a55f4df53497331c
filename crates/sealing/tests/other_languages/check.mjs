// Answers questions about signatures with libraries that Posthorn did not write.
//
// One JSON object a line on stdin, one answer a line on stdout, in order. A question that cannot be
// answered is answered with its error, so that the test says which.

import crypto from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

const require = createRequire(path.join(process.argv[2], "package.json"));
const { Webhook, WebhookVerificationError } = require("standardwebhooks");
const webPush = require("web-push");

const unpack = (text) => Buffer.from(text, "base64");

// After a signature has fitted, the library parses the body; not every body here is JSON.
function accepts(webhook, body, headers) {
  try {
    webhook.verify(body, headers);
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    if (error instanceof SyntaxError) return true;
    throw error;
  }
}

function standardWebhooks(q) {
  const webhook = new Webhook(q.secret);
  const body = unpack(q.body);
  const headers = {
    "webhook-id": q.id,
    "webhook-timestamp": String(q.timestamp),
    "webhook-signature": q.signature,
  };
  const changed = Buffer.concat([body, Buffer.from("x")]);
  const other = { ...headers, "webhook-id": q.id + "x" };
  return {
    accepted: accepts(webhook, body, headers),
    accepted_changed: accepts(webhook, changed, headers) || accepts(webhook, body, other),
    signature: webhook.sign(q.id, new Date(q.timestamp * 1000), body),
  };
}

// Verifies with a key of a JWKS page, and signs with a key pair of its own.
function ed25519(q) {
  const jwk = q.jwks.keys.find((key) => key.kid === q.kid);
  const key = crypto.createPublicKey({ key: jwk, format: "jwk" });
  const content = unpack(q.content);
  const fits = (data) => crypto.verify(null, data, key, unpack(q.signature));
  const pair = crypto.generateKeyPairSync("ed25519");
  const own = pair.privateKey.export({ format: "jwk" });
  return {
    accepted: fits(content),
    accepted_changed: fits(Buffer.concat([content, Buffer.from("x")])),
    seed: Buffer.from(own.d, "base64url").toString("base64"),
    public: Buffer.from(own.x, "base64url").toString("base64"),
    signature: crypto.sign(null, content, pair.privateKey).toString("base64"),
  };
}

function hmac(q) {
  const tag = crypto.createHmac(q.hash, unpack(q.key)).update(unpack(q.content));
  return { hex: tag.digest("hex") };
}

// What the library would send, with its own keys for the encryption and ours for the sender.
function push(q) {
  const details = webPush.generateRequestDetails(
    { endpoint: q.endpoint, keys: { p256dh: q.p256dh, auth: q.auth } },
    unpack(q.text),
    {
      vapidDetails: { subject: q.subject, publicKey: q.sender_public, privateKey: q.sender },
      TTL: q.ttl,
      topic: q.topic,
      contentEncoding: q.encoding,
    },
  );
  const headers = Object.entries(details.headers).map(([k, v]) => [k.toLowerCase(), String(v)]);
  return { headers: Object.fromEntries(headers), body: details.body.toString("base64") };
}

const operations = { standard_webhooks: standardWebhooks, ed25519, hmac, push };

const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
for await (const line of lines) {
  const question = JSON.parse(line);
  let answer;
  try {
    answer = operations[question.ask](question);
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
