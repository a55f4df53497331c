// The portal and the API as pages of customers use them that were made for Svix: its components for React, unchanged, bundled as their
// users bundle them, in a page of another site.
//
//   node svix-react.mjs URL KEY RECEIVER SITE PACKAGES
//
// SITE is the port of the page around the portal; PACKAGES the folder with the components. Prints one line for each finding, and ends
// with 1 when there is any.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { end, ensure, launch, open, part, until } from "./walk.mjs";

const [base, key, receiver, site, packages] = process.argv.slice(2);
const load = createRequire(`${packages}/`);

const api = async (method, path, body) => {
  const answer = await fetch(`${base}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
};
await api("POST", "/event-type", { name: "order.paid", description: "Its payment was confirmed." });
const app = await api("POST", "/app", { name: "Acme", uid: "acme" });
const endpoint = await api("POST", `/app/${app.id}/endpoint`, { url: `${receiver}/first`, description: "first" });
const message = await api("POST", `/app/${app.id}/msg`, { eventType: "order.paid", payload: { number: 7 } });
// Statistics come with the next outcomes, or a little later.
await until("the attempt in the statistics", async () => (await api("GET", `/app/${app.id}/endpoint/${endpoint.id}/stats`)).success === 1);
const { url, token } = await api("POST", `/auth/app-portal-access/${app.id}`, {});

// What a customer's page would say: a list from each hook, buttons for what they do, and the portal below.
const source = `
  import { createElement as h, useState } from "react";
  import { createRoot } from "react-dom/client";
  import * as svix from "svix-react";
  const own = window.own;
  const Lines = ({ id, of, show }) =>
    h("ul", { id, "data-error": of.error ? String(of.error) : "" }, (of.data || []).map((one, n) => h("li", { key: n }, show(one))));
  function Page() {
    const attempts = svix.useEndpointMessageAttempts(own.endpoint);
    const fresh = svix.useNewEndpoint();
    const secret = svix.useEndpointSecret(own.endpoint);
    const headers = svix.useEndpointHeaders(own.endpoint);
    const stats = svix.useEndpointStats(own.endpoint);
    const functions = svix.useEndpointFunctions(own.endpoint);
    const resend = svix.useAttemptFunctions(attempts.data?.[0] || {});
    const endpoints = svix.useEndpoints();
    const [said, say] = useState("");
    const act = (what, go) => h("button", { id: what, onClick: () => go().then((it) => say(what + " " + JSON.stringify(it ?? "done")), (error) => say(what + " failed " + error)) }, what);
    return h("main", null,
      h("p", { id: "said" }, said),
      h("p", { id: "secret" }, secret.data?.key || ""),
      h("p", { id: "headers" }, JSON.stringify(headers.data?.headers || {})),
      h("p", { id: "stats" }, String(stats.data?.success ?? "")),
      h("p", { id: "one" }, svix.useEndpoint(own.endpoint).data?.description || ""),
      h("p", { id: "message" }, svix.useMessage(own.message).data?.eventType || ""),
      h(Lines, { id: "endpoints", of: endpoints, show: (one) => one.url }),
      h(Lines, { id: "types", of: svix.useEventTypes(), show: (one) => one.name }),
      h(Lines, { id: "messages", of: svix.useMessages(), show: (one) => one.id }),
      h(Lines, { id: "attempted", of: svix.useAttemptedMessages(own.endpoint), show: (one) => one.id }),
      h(Lines, { id: "receivers", of: svix.useMessageEndpoints(own.message), show: (one) => one.id }),
      h(Lines, { id: "attempts", of: attempts, show: (one) => one.id }),
      h(Lines, { id: "tries", of: svix.useMessageAttempts(own.message), show: (one) => one.id }),
      h("input", { id: "url", value: fresh.url.value, onChange: (event) => fresh.url.setValue(event.target.value) }),
      act("create", () => fresh.createEndpoint().then((made) => { endpoints.reload(); if (made.error) throw made.error; return made.endpoint.url; })),
      act("patch", () => headers.patchEndpointHeaders({ headers: { "x-team": "a" } }).then(() => headers.reload())),
      act("rotate", () => secret.rotateSecret({}).then(() => secret.reload())),
      act("update", () => functions.updateEndpoint({ url: own.url, description: "changed" }).then((it) => it.description)),
      act("recover", () => functions.recoverEndpointMessages({ since: new Date(Date.now() - 3600000) })),
      act("resend", () => resend.resendAttempt()),
      h(svix.AppPortal, { url: own.portal, darkMode: true, primaryColor: "28bb93", fullSize: true }));
  }
  createRoot(document.getElementById("root")).render(
    h(svix.SvixProvider, { token: own.token, appId: own.app, options: own.options }, h(Page)));
`;
const built = await load("esbuild").build({
  stdin: { contents: source, resolveDir: packages },
  bundle: true, write: false, format: "iife", platform: "browser", logLevel: "silent",
  // The client looks at the process that it runs in; bundlers put this in its place.
  define: { "process.env.NODE_ENV": '"production"', process: "processOfPage" },
});
const own = { portal: url, token, app: app.id, endpoint: endpoint.id, message: message.id, url: `${receiver}/first`, options: { serverUrl: base } };
const page_text = `<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>shop</title><div id="root"></div>
  <script>window.own = ${JSON.stringify(own)}; window.processOfPage = { env: {}, versions: {} };</script><script src="/bundle.js"></script></html>`;
const server = createServer((request, answer) => {
  const script = request.url === "/bundle.js";
  answer.setHeader("content-type", script ? "text/javascript" : "text/html");
  answer.end(script ? built.outputFiles[0].text : page_text);
});
await new Promise((done) => server.listen(Number(site), "127.0.0.1", done));

// Nothing of a site is kept within another: as people have it who block cookies of third parties.
const browser = await launch("--test-third-party-cookie-phaseout");
const { page } = await open(browser, { base, beside: /^(data:|http:\/\/localhost:)/ });
page.at("components");
await page.goto(`http://localhost:${site}/`);

await part("components", async () => {
  const text = (id) => page.locator(`#${id}`).innerText();
  const lines = (id) => page.locator(`#${id} li`).allInnerTexts();
  const expected = [
    ["endpoints", `${receiver}/first`], ["types", "order.paid"], ["messages", message.id],
    ["attempted", message.id], ["receivers", endpoint.id],
  ];
  for (const [id, line] of expected) await until(`${line} among ${id}`, async () => (await lines(id)).includes(line)).catch((error) => ensure(false, id, error.message));
  for (const id of ["attempts", "tries"]) await until(`an attempt among ${id}`, async () => (await lines(id)).some((one) => one.startsWith("atmpt_")));
  for (const id of ["endpoints", "types", "messages", "attempted", "receivers", "attempts", "tries"]) {
    const error = await page.locator(`#${id}`).getAttribute("data-error");
    ensure(!error, id, `says ${error}`);
  }
  await until("the secret", async () => (await text("secret")).startsWith("whsec_"));
  ensure(await text("one") === "first" && await text("message") === "order.paid", "single things", `are ${await text("one")} and ${await text("message")}`);
  ensure(Number(await text("stats")) === 1, "stats", `are ${await text("stats")}`);

  const press = async (what, outcome) => {
    await page.click(`#${what}`);
    await until(`an outcome of ${what}`, async () => (await text("said")).startsWith(`${what} `));
    ensure(outcome.test(await text("said")), what, `says ${await text("said")}`);
  };
  // Its form sends an empty list of event types for all of them.
  await page.fill("#url", `${receiver}/second`);
  await press("create", /second/);
  await until("the new endpoint", async () => (await lines("endpoints")).includes(`${receiver}/second`));
  const before = await text("secret");
  await press("patch", /done/);
  await until("the header", async () => (await text("headers")).includes("x-team"));
  await press("rotate", /done/);
  await until("another secret", async () => { const now = await text("secret"); return now.startsWith("whsec_") && now !== before; });
  await press("update", /changed/);
  await press("recover", /recover/);
  await press("resend", /resend/);
  ensure(!/failed/.test(await text("said")), "resend", await text("said"));
  await until("a manual attempt", async () => {
    const all = await api("GET", `/app/${app.id}/attempt/msg/${message.id}`);
    return all.data.some((one) => one.triggerType === 1);
  });

  // The portal is in the frame, in the wanted colours, and as tall as its page.
  const inside = page.frameLocator("iframe");
  await inside.locator("h1", { hasText: "Endpoints" }).waitFor();
  ensure(await inside.locator("html").getAttribute("data-theme") === "dark", "frame", "darkMode is not honoured");
  await inside.locator("nav a", { hasText: "Messages" }).click();
  await inside.locator("h1", { hasText: "Messages" }).waitFor();
  const height = await page.locator("iframe").evaluate((frame) => frame.style.height);
  ensure(/^\d+px$/.test(height), "frame", `has the height ${height}`);
});
await browser.close();
server.close();
end("components");
