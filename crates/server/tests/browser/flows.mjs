// What operators do with the console, in a real browser, from a server that has nothing: the first event, a dead letter
// that is found and retried, a redrive with progress that is stopped, a replay, a new secret, live updates under traffic.
//
//   node flows.mjs URL KEY
//
// With IMAGES set to a folder, pictures of the main pages are written there.
//
// Prints one line for each finding, and ends with 1 when there is any.
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { small } from "./small_png.mjs";
import { end, ensure, findings, headed, launch, open, scan, sleep, until } from "./walk.mjs";

const [base, key] = process.argv.slice(2);
const home = "/console/t/default";

// A receiver that works or fails, as it is told.
let works = true;
const receiver = createServer((request, response) => { request.resume(); response.statusCode = works || request.url.includes("works") ? 200 : 503; response.end("said by the receiver"); });
await new Promise((done) => receiver.listen(0, "127.0.0.1", done));
const place = `http://127.0.0.1:${receiver.address().port}`;

const api = async (method, path, body) => {
  const answer = await fetch(base + path, { method, headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
};
let number = 0;
const publish = () => api("POST", "/v1/events", { topic: "orders", type: "order.paid", key: `customer-${number % 7}`, payload: { number: ++number, total: 12.5 } });
const settle = (state, count) => until(`${count} ${state}`, async () => (await api("GET", "/v1/stats"))[state] >= count);

const browser = await launch();
const { context, page } = await open(browser, { base }, { colorScheme: "light" });
// Streams that a page has opened, and whether it was loaded anew.
await page.addInitScript(() => {
  window.streams = [];
  const Own = window.EventSource;
  window.EventSource = class extends Own { constructor(...given) { super(...given); window.streams.push(this); } };
});
let at = "start";
page.on("dialog", (dialog) => dialog.accept());
const go = async (path) => { await page.goto(base + path, { waitUntil: "load" }); await page.evaluate(() => { window.same = true; }); };
// The page has asked for itself again, and shows that.
const updated = async () => { await page.waitForResponse((answer) => answer.request().resourceType() === "fetch"); await page.evaluate(() => new Promise((done) => setTimeout(done, 50))); };
const isSame = () => page.evaluate(() => window.same === true);
const picture = async (name) => { if (process.env.IMAGES) { await page.mouse.move(0, 0); writeFileSync(`${process.env.IMAGES}/console-${name}.png`, small(await page.screenshot())); } };
const flow = async (name, walk) => {
  at = name;
  page.at(name);
  const began = Date.now();
  try { await walk(); } catch (error) { findings.push(`${name}: ${error.message}`); }
  console.log(`${name}: ${Date.now() - began} ms`);
};

await page.goto(`${base}/console/`);
await page.fill("#key", key);
await page.click("button");
await page.waitForURL((url) => !url.pathname.endsWith("/login"));

await flow("the first event", async () => {
  await go("/console/");
  ensure(await page.locator("#first").count() === 1, at, "the two commands are not there");
  await headed(page, at, "Overview");
  await scan(page, "a server that has nothing");
  await page.emulateMedia({ colorScheme: "light" });
  for (const [path, h1] of [["events", "Events"], ["deliveries", "Deliveries"], ["dead-letters", "Dead letters"], ["subscriptions", "Subscriptions"], ["jobs", "Jobs"], ["topics", "Topics"], ["certificates", "Certificates"]]) {
    await go(`${home}/${path}`);
    await headed(page, `${path}, empty`, h1);
    await scan(page, `${path}, empty`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await go("/console/");
  await api("PUT", "/v1/topics/orders", { description: "" });
  await until("a stream", () => page.evaluate(() => window.streams.some((own) => own.readyState === 1)));
  await publish();
  await page.locator("#arrived a").waitFor();
  ensure(await isSame(), at, "the page was loaded anew");
  ensure(await page.locator("#first").count() === 0, at, "it still waits");
});

const once = { schedule: { max_attempts: 1 } };
const subscribe = (name, policy) => api("POST", "/v1/subscriptions", { name, url: `${place}/${name}`, filter: { any_of: [{ topics: ["orders"] }] }, policy });
await subscribe("works", {});
const failing = await subscribe("acme-erp", once);

await flow("a dead letter, found and retried", async () => {
  works = false;
  await go(`${home}/dead-letters`);
  for (let n = 0; n < 5; n++) await publish();
  // They come by themselves.
  await until("five rows", async () => await page.locator("#rows tr[data-row]").count() === 5);
  ensure(await isSame(), at, "the page was loaded anew");
  ensure(/acme-erp/.test(await page.textContent("#groups-table")), at, "there are no groups");
  await page.locator("#rows a[data-open]").first().click();
  await page.waitForURL((url) => url.pathname.includes("/deliveries/dlv_"));
  ensure(/Attempt 1: 503/.test(await page.textContent(".timeline")), at, "nothing says what happened");
  await picture("delivery");
  works = true;
  await page.getByRole("button", { name: "Retry now" }).click();
  await page.waitForURL((url) => url.search.includes("done=retried"));
  await page.evaluate(() => { window.same = true; });
  await until("delivered", async () => /delivered/.test(await page.textContent(".bar")));
  ensure(await isSame(), at, "the page was loaded anew");
  works = false;
});

await flow("a redrive with progress, stopped", async () => {
  for (let n = 0; n < 40; n++) await publish();
  await settle("dead", 44);
  await go(`${home}/dead-letters`);
  await picture("dead-letters");
  works = true;
  await page.getByRole("link", { name: /Retry these: acme-erp/ }).click();
  await page.waitForURL((url) => url.pathname.endsWith("/redrive"));
  ensure(/44 of them/.test(await page.textContent("main")), at, "the count is not asked first");
  await page.fill("#r-pace", "4");
  await page.getByRole("button", { name: "Retry them" }).click();
  await page.waitForURL((url) => url.pathname.includes("/redrives/"));
  await page.evaluate(() => { window.same = true; });
  const progress = () => page.textContent("[data-say]");
  const first = await progress();
  await until("progress", async () => await progress() !== first);
  ensure(await isSame(), at, "the page was loaded anew");
  await picture("redrive");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.waitForURL((url) => url.search.includes("done=stopped"));
  ensure(/cancelled/.test(await page.textContent("main")), at, "it goes on");
  ensure(/session /.test(await page.textContent("main .facts")), at, "nothing says who has started it");
});

await flow("selected rows", async () => {
  works = true;
  await go(`${home}/deliveries?state=dead`);
  const before = await page.locator("#rows tr[data-row]").count();
  await page.locator("#rows tbody input").nth(0).check();
  await page.locator("#rows tbody input").nth(1).check();
  const told = updated();
  await publish();
  await told;
  ensure(await page.locator("#rows tbody input:checked").count() === 2, at, "what was selected is not any more");
  await picture("deliveries");
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  ensure(/2 deliveries\./.test(await page.textContent("main")), at, "the count is not asked first");
  await page.getByRole("button", { name: "Delete them for good" }).click();
  await page.getByText("2 were deleted.").waitFor();
  await go(`${home}/deliveries?state=dead`);
  ensure(await page.locator("#rows tr[data-row]").count() <= before - 2, at, "they are still there");
});

await flow("a replay", async () => {
  await go(`${home}/subscriptions/${failing.id}`);
  ensure(/A delivery is tried once/.test(await page.textContent("main")), at, "the policy is not told in words");
  await picture("subscription");
  await page.selectOption("#r-status", "delivered");
  await page.getByRole("button", { name: "Count" }).click();
  ensure(/deliveries would be made/.test(await page.textContent("#replay")), at, "nothing is counted");
  await page.getByRole("button", { name: "Start the replay" }).click();
  await page.waitForURL((url) => url.pathname.includes("/jobs/"));
  await until("its end", async () => /done/.test(await page.textContent("#progress-now .state")));
});

await flow("a new secret", async () => {
  await go(`${home}/subscriptions/${failing.id}`);
  await page.fill("#k-overlap", "2h");
  await page.getByRole("button", { name: "Rotate the secret" }).click();
  await page.getByRole("button", { name: "Rotate it" }).click();
  await page.getByText("whsec_").waitFor();
});

await flow("a filter, tried", async () => {
  await go(`${home}/subscriptions/${failing.id}/filter`);
  await page.fill("#f-types", "refund.*");
  await page.getByRole("button", { name: "Try it" }).click();
  await page.getByText("It does not want that event").waitFor();
  await picture("filter");
});

// Traffic, until it is told to stop.
let traffic = false;
const run = async () => { while (traffic) { await publish().catch(() => {}); await sleep(50); } };

await flow("live, and no row moves under the focus", async () => {
  await go(`${home}/deliveries`);
  const link = page.locator("#rows a[data-open]").nth(2);
  await link.focus();
  const before = { name: await link.getAttribute("title"), box: await link.boundingBox() };
  const focused = () => page.evaluate(() => document.activeElement.title);
  traffic = true;
  const running = run();
  await page.locator("[data-waits]").waitFor();
  for (let updates = 0; updates < 2; updates++) await updated();
  const box = await link.boundingBox();
  ensure(await focused() === before.name, at, "the focus is elsewhere");
  ensure(box.y === before.box.y, at, `the row moved from ${before.box.y} to ${box.y}`);
  traffic = false;
  await running;
  await page.locator("[data-waits]").click();
  await until("new rows", async () => await page.locator("#rows a[data-open]").nth(2).getAttribute("title") !== before.name);
  ensure(await isSame(), at, "the page was loaded anew");
  // What is typed stays, too.
  await page.fill("#f-status", "5x");
  const told = updated();
  await publish();
  await told;
  ensure(await page.inputValue("#f-status") === "5x", at, "what was typed is gone");
});

await flow("a tab under traffic does not grow", async () => {
  const paused = await subscribe("warehouse", {});
  await api("POST", `/v1/subscriptions/${paused.id}/pause`);
  works = false;
  await go("/console/?range=15m");
  const tools = await context.newCDPSession(page);
  // What is kept besides the page itself. An update that is being put in place is there twice, so the smallest of some looks counts.
  const size = async () => {
    const looks = [];
    for (let look = 0; look < 5; look++) {
      await tools.send("HeapProfiler.collectGarbage");
      const { usedSize } = await tools.send("Runtime.getHeapUsage");
      const { nodes, jsEventListeners } = await tools.send("Memory.getDOMCounters");
      const shown = await page.evaluate(() => { const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL); let count = 1; while (walk.nextNode()) count++; return count; });
      looks.push({ usedSize, shown, besides: nodes - shown, jsEventListeners });
      await sleep(700);
    }
    return Object.fromEntries(Object.keys(looks[0]).map((name) => [name, Math.min(...looks.map((look) => look[name]))]));
  };
  await page.locator("details summary").first().click();
  traffic = true;
  const running = run();
  let updates = 0;
  page.on("response", (response) => { if (response.request().resourceType() === "fetch") updates++; });
  await sleep(5000);
  const [before, told] = [await size(), updates];
  // Twelve seconds, or as long as GROW_MS says: `./test long` waits for ten minutes.
  const watched = Number(process.env.GROW_MS || 12000);
  await sleep(watched);
  const after = await size();
  traffic = false;
  await running;
  ensure(updates > told + 2, at, `only ${updates - told} updates`);
  ensure(updates <= told + watched / 600 + 10, at, `${updates - told} updates are too many`);
  ensure(after.besides < before.besides + before.shown / 2 + 200, at, `nodes besides the page: ${before.besides}, then ${after.besides}`);
  ensure(after.shown < before.shown * 2 + 400, at, `nodes of the page: ${before.shown}, then ${after.shown}`);
  ensure(after.jsEventListeners < before.jsEventListeners * 1.2 + 20, at, `listeners: ${before.jsEventListeners}, then ${after.jsEventListeners}`);
  ensure(after.usedSize < before.usedSize + 2e6, at, `heap: ${before.usedSize}, then ${after.usedSize}`);
  // For whom most waits is counted every few seconds.
  await until("the backlog", async () => /warehouse/.test(await page.locator("#backlog").textContent({ timeout: 200 }).catch(() => "")));
  ensure(/acme-erp/.test(await page.textContent("#failing")), at, "who fails is not named");
  ensure(/warehouse/.test(await page.textContent("#backlog")), at, "for whom most waits is not named");
  ensure(await page.locator("details[open]").count() === 1, at, "what was opened is closed");
  await page.locator("details summary").first().click();
  await picture("overview");
});

await flow("hidden tabs have no stream, and off stays off", async () => {
  await go(`${home}/deliveries`);
  const open = () => page.evaluate(() => window.streams.filter((own) => own.readyState !== 2).length);
  await until("one stream", async () => await open() === 1);
  const hide = (hidden) => page.evaluate((hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); }, hidden);
  await hide(true);
  ensure(await open() === 0, at, "a hidden tab has a stream");
  await hide(false);
  ensure(await open() === 1, at, "a tab that is seen again has none");
  await page.locator("[data-live-button]").click();
  ensure(await open() === 0, at, "switched off, and it goes on");
  await go(`${home}/deliveries`);
  ensure(await page.getAttribute("[data-live-button]", "aria-pressed") === "false" && await open() === 0, at, "off is on again");
  await page.locator("[data-live-button]").click();
  await until("one stream", async () => await open() === 1);
});

await flow("logging out ends other tabs", async () => {
  const other = await context.newPage();
  await other.goto(base + "/console/");
  await other.locator("button", { hasText: "Log out" }).click();
  await until("the login", () => page.url().includes("/login"));
});

await browser.close();
receiver.close();
end("flows");
