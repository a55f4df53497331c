// A client with the types that openapi-typescript makes from our document, and a subscription made
// with it. What the server would refuse does not compile.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];

const policy: Schemas["PolicyPatch"] = {
  schedule: {
    backoff: { exponential: { initial: "2s", factor: 3, cap: "1m" } },
    jitter: { ratio: { ratio: 0.2 } },
    max_attempts: 4,
    retry_after: { honour: false },
  },
  gate: {
    url: "https://gate.example.com/open",
    timeout: "1s",
    status: ["2xx"],
    expect: { pointer: "/Status", equals: 2 },
    on_closed: { postpone: { wait: "1m" } },
  },
  auth: [
    {
      kind: "hmac_header",
      secret: "shared",
      header: "X-Signature",
      hash: "sha256",
      encoding: "hex",
      content: "body",
      format: "sha256={signature}",
    },
  ],
  request: { headers: { "X-Type": "{event.type}" } },
  order: { scope: "key", key: "{event.payload.customer}" },
  success: ["200-204"],
};

const payload: Schemas["Condition"] = {
  all: [
    { test: { path: "/total", op: "gt", value: 10 } },
    { not: { any: [{ test: { path: "/test", op: "exists" } }] } },
  ],
};

// @ts-expect-error there is no such scope
const wrongWord: Schemas["PolicyPatch"] = { order: { scope: "keys" } };
// @ts-expect-error the wait is missing
const missing: Schemas["PolicyPatch"] = { schedule: { backoff: { fixed: {} } } };
// @ts-expect-error there is no such knob
const unknown: Schemas["PolicyPatch"] = { schedul: {} };
// @ts-expect-error there is no such operator
const wrongOp: Schemas["Condition"] = { test: { path: "/a", op: "is" } };
// @ts-expect-error a subscription leads somewhere
const nowhere: Schemas["NewSubscription"] = { name: "nowhere" };
void [wrongWord, missing, unknown, wrongOp, nowhere];

export async function make(server: string, key: string, url: string): Promise<string> {
  const client = createClient<paths>({
    baseUrl: server,
    headers: { Authorization: `Bearer ${key}` },
  });
  const { data, error } = await client.POST("/v1/subscriptions", {
    body: {
      url,
      name: "made by typescript",
      filter: { any_of: [{ topics: ["orders"], payload }] },
      policy,
      secrets: { shared: "0123456789abcdef" },
    },
  });
  if (!data) throw new Error(JSON.stringify(error));
  const backoff = data.policy.schedule?.backoff;
  if (!backoff || !("exponential" in backoff) || backoff.exponential.factor !== 3) {
    throw new Error(JSON.stringify(data));
  }
  return data.id;
}
