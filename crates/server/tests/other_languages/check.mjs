// An application server of Web Push and a client of the API, made of libraries that Posthorn did not
// write.
//
// One JSON object a line on stdin, one answer a line on stdout, in order. A question that cannot be
// answered is answered with its error, so that the test says which.

import { execFileSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import http from "node:http";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.argv[2], "package.json"));
const webPush = require("web-push");
// What it is made of.
const ece = require("http_ece");
const jws = require("jws");

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

// A client with types made from our OpenAPI document: it must compile, and what it makes must be taken.
async function openapi(q) {
  const packages = process.argv[2];
  const run = (file, args) => {
    try {
      execFileSync(process.execPath, [path.join(packages, "node_modules", file), ...args], {
        cwd: q.folder,
        stdio: "pipe",
      });
    } catch (error) {
      throw new Error(`${file}: ${error.stdout}${error.stderr}`);
    }
  };
  const here = path.dirname(new URL(import.meta.url).pathname);
  fs.symlinkSync(path.join(packages, "node_modules"), path.join(q.folder, "node_modules"));
  fs.writeFileSync(path.join(q.folder, "package.json"), '{"type":"module"}');
  fs.copyFileSync(path.join(here, "openapi_client.ts"), path.join(q.folder, "client.ts"));
  run("openapi-typescript/bin/cli.js", [q.document, "-o", "schema.d.ts"]);
  const strict = ["--strict", "--module", "es2022", "--target", "es2022"];
  run("typescript/bin/tsc", [...strict, "--moduleResolution", "bundler", "client.ts"]);
  const client = await import(pathToFileURL(path.join(q.folder, "client.js")).href);
  return { id: await client.make(q.server, q.key, q.url) };
}

// What a push service and a browser make of a request of ours.
function receive(q) {
  const [, token, key] = q.authorization.match(/^vapid t=([^,]+),k=(.+)$/);
  if (key !== q.key) throw new Error("signed with another key than the tenant's");
  const point = Buffer.from(key, "base64url");
  const jwk = {
    kty: "EC",
    crv: "P-256",
    x: point.subarray(1, 33).toString("base64url"),
    y: point.subarray(33).toString("base64url"),
  };
  const pem = crypto.createPublicKey({ key: jwk, format: "jwk" });
  const accepted = jws.verify(token, "ES256", pem.export({ type: "spki", format: "pem" }));
  const { payload: claims } = jws.decode(token);
  const curve = crypto.createECDH("prime256v1");
  curve.setPrivateKey(Buffer.from(q.private, "base64url"));
  const text = ece.decrypt(Buffer.from(q.body, "base64url"), {
    version: "aes128gcm",
    privateKey: curve,
    authSecret: q.auth,
  });
  const seconds_left = Math.floor(claims.exp - Date.now() / 1000);
  return { accepted, claims, seconds_left, text: text.toString() };
}

const operations = { send, openapi, receive };

const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
for await (const line of lines) {
  let answer;
  try {
    const question = JSON.parse(line);
    answer = await operations[question.ask](question);
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
