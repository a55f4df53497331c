// Walks through the portal in a real browser: a link is redeemed once, every page loads under its policy without a word
// of complaint, is accessible in both themes, and can be read without scripts. Then what customers do: a new endpoint in
// three steps, sending again, a new secret, logging out; and the portal in a frame, where that is allowed and where not.
//
//   node portal.mjs URL KEY RECEIVER SITE PICTURES
//
// SITE is the port of the page that may have the portal in a frame. With SHORT set only what depends on the store: pages
// in one theme, and the ways. With IMAGES set, two pictures for the documentation are kept in that folder.
//
// Prints one line for each finding, and ends with 1 when there is any.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { readFileSync, mkdirSync } from "node:fs";

const require = createRequire(process.env.BROWSER_PACKAGES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [base, key, receiver, site, pictures] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });
const short = Boolean(process.env.SHORT);

const findings = [];
const find = (where, what) => findings.push(`${where}: ${what}`);
const ensure = (condition, where, what) => { if (!condition) find(where, what); };

// A browser that keeps nothing of a site within another: as people have it who block cookies of third parties.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--test-third-party-cookie-phaseout"],
});

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  let place = "start";
  page.at = (where) => { place = where; };
  page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !/status of 4(0[0-9]|10)/.test(message.text())) find(place, `console: ${message.text()}`); });
  page.on("pageerror", (error) => find(place, `script: ${error.message}`));
  page.on("request", (request) => { if (!request.url().startsWith(base) && !/^(data:|http:\/\/localhost:)/.test(request.url())) find(place, `asks ${request.url()}`); });
  return { context, page };
}

async function link(more = {}) {
  const answer = await fetch(`${base}/v1/portal/links`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "posthorn-tenant": "acme", "content-type": "application/json" },
    body: JSON.stringify({ name: "Ann <b>", return_url: "https://app.example.com/settings", capabilities: ["view", "see_secret", "rotate_secret", "manage_endpoints", "resend"], ...more }),
  });
  return (await answer.json()).url;
}

async function check(page, where) {
  // What is folded is looked at too. The scanner came with the page, outside of its policy.
  const results = await page.evaluate(async () => {
    const folds = [...document.querySelectorAll("details")], before = folds.map((fold) => fold.open);
    for (const fold of folds) fold.open = true;
    const found = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    folds.forEach((fold, at) => { fold.open = before[at]; });
    return found;
  }).catch((error) => ({ violations: [], failed: error.message }));
  if (results.failed) find(where, `axe: ${results.failed}`);
  for (const violation of results.violations) {
    find(where, `axe: ${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}`);
  }
}

// ---- the way in ----
const { context, page } = await open();
page.at("redeem");
const first = await link();
await page.goto(first);
await page.waitForURL((url) => url.pathname === "/portal/");
ensure(!page.url().includes("lnk_"), "redeem", "the token is in the address bar");
const cookie = (await context.cookies()).find((one) => one.name === "posthorn-portal");
ensure(cookie?.httpOnly && cookie.path === "/portal" && cookie.sameSite === "Lax", "redeem", `the cookie is ${JSON.stringify(cookie)}`);
const used = await open();
used.page.at("used link");
await used.page.goto(first);
await used.page.waitForSelector("text=does not work any more");
ensure(new URL(used.page.url()).pathname === "/portal/redeem" && !used.page.url().includes("lnk_"), "used link", `is at ${used.page.url()}`);
await used.page.goto(`${base}/portal/messages`);
ensure(/session has ended/.test(await used.page.textContent("h1")), "used link", "somebody is in");
const late = await link({ redeem_within: "1s" });
await new Promise((resolve) => setTimeout(resolve, 1500));
await used.page.goto(late);
await used.page.waitForSelector("text=does not work any more");
await used.context.close();
// In the browser that was in before, the page leads back.
const again = await context.newPage();
await again.goto(first);
await again.waitForSelector("text=does not work any more");
ensure(await again.getAttribute("a.main-action", "href") === "https://app.example.com/settings", "used link", "does not lead back");
await again.close();
const blind = await open({ javaScriptEnabled: false });
await blind.page.goto(await link());
ensure(/needs scripts, once/.test(await blind.page.textContent("main")), "no scripts", "nothing says that scripts are needed");
await blind.context.close();

// ---- every page ----
const href = async (path, selector) => { await page.goto(base + path); return page.getAttribute(selector, "href"); };
const warehouse = await href("/portal/", "tr[data-row]:has-text('Warehouse') a[data-open]");
const production = await href("/portal/", "tr[data-row]:has-text('Production') a[data-open]");
const message = await href("/portal/messages", "tr[data-row] a[data-open]");
const failed = await href("/portal/attempts?status=5xx", "tr[data-row] a[data-open]");
const worked = await href("/portal/attempts?status=2xx", "tr[data-row] a[data-open]");
const pages = [
  ["endpoints", "/portal/"], ["endpoint", warehouse], ["endpoint-week", `${production}?range=7d`], ["new", "/portal/endpoints/new"],
  ["messages", "/portal/messages"], ["filtered", "/portal/messages?type=order.paid&from=2026-01-01T00:00"], ["wrong-filter", "/portal/messages?from=no"], ["wrong-status", "/portal/attempts?status=abc"],
  ["message", message], ["attempts", "/portal/attempts"], ["failed-attempt", failed], ["attempt", worked],
  ["event-types", "/portal/event-types"], ["event-type", "/portal/event-types/order.created"], ["notifications", "/portal/notifications"], ["lost", "/portal/nothing"],
];
const watch = (tab) => tab.addInitScript(() => { window.broken = []; document.addEventListener("securitypolicyviolation", (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`)); });
const chosen = async (tab) => {
  // The second step, which only a form leads to.
  await tab.goto(`${base}/portal/endpoints/new`);
  await tab.fill("#f-url", "https://example.com/webhooks");
  await tab.click("button[value=which]");
  await tab.waitForSelector("button[value=create]");
  await tab.check("input[value='order.created']");
  await tab.check("input[value='order.paid']");
};
for (const scheme of short ? ["light"] : ["light", "dark"]) {
  const { context: own, page: tab } = await open({ colorScheme: scheme, storageState: await context.storageState() });
  await watch(tab);
  if (!short) await tab.addInitScript(axe);
  const settled = async (where, name) => {
    ensure(await tab.locator("h1").count() === 1, where, "has not one h1");
    await tab.waitForTimeout(100);
    for (const broken of await tab.evaluate(() => window.broken)) find(where, `breaks its policy: ${broken}`);
    await tab.screenshot({ path: `${pictures}/${name}-${scheme}.png`, fullPage: true });
    if (!short) await check(tab, where);
  };
  for (const [name, path] of pages) {
    const where = `${name} (${scheme})`;
    tab.at(where);
    const answer = await tab.goto(base + path, { waitUntil: "load" });
    ensure(answer.status() < 500, where, `answers ${answer.status()}`);
    const policy = answer.headers()["content-security-policy"] || "";
    ensure(policy.includes("default-src 'none'") && !policy.includes("unsafe"), where, `its policy is ${policy}`);
    await settled(where, name);
  }
  tab.at(`which (${scheme})`);
  await chosen(tab);
  await settled(`which (${scheme})`, "which");
  await own.close();
  if (short) continue;
  const stranger = await open({ colorScheme: scheme });
  await stranger.page.addInitScript(axe);
  stranger.page.at(`outside (${scheme})`);
  await stranger.page.goto(`${base}/portal/messages`);
  await check(stranger.page, `outside (${scheme})`);
  await stranger.context.close();
}

// Narrow, and without scripts.
const small = short ? [] : pages;
const narrow = await open({ viewport: { width: 320, height: 640 }, storageState: await context.storageState() });
const fits = async (name) => {
  const wide = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
  ensure(wide <= 321, `${name} (320 px)`, `is ${wide} px wide`);
  await narrow.page.screenshot({ path: `${pictures}/${name}-narrow.png`, fullPage: true });
};
for (const [name, path] of small) {
  narrow.page.at(`${name} (320 px)`);
  await narrow.page.goto(base + path, { waitUntil: "load" });
  await fits(name);
}
if (!short) { await chosen(narrow.page); await fits("which"); }
await narrow.context.close();
const plain = await open({ javaScriptEnabled: false, storageState: await context.storageState() });
for (const [name, path] of small) {
  await plain.page.goto(base + path);
  ensure((await plain.page.textContent("main")).trim().length > 20, `${name} (no scripts)`, "shows nothing");
}
await plain.context.close();

// ---- a browser whose push service cannot be reached says so; this one is never asked ----
const apart = await open({ storageState: await context.storageState() });
apart.page.at("push service away");
await apart.context.grantPermissions(["notifications"], { origin: base });
await apart.page.addInitScript(() => { PushManager.prototype.subscribe = () => Promise.reject(new DOMException("Registration failed", "AbortError")); });
await apart.page.goto(`${base}/portal/`);
await apart.page.click("form[data-push] button");
await apart.page.waitForSelector("#browser-said:has-text('cannot be reached')");
await apart.context.close();

// ---- a new endpoint in three steps, and its test ----
await watch(page);
if (!short) await page.addInitScript(axe);
// A page that a form leads to cannot be opened again, so it changes its clothes.
const scan = async (where) => {
  if (short) return;
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await check(page, `${where} (${colorScheme})`);
  }
};
page.at("three steps");
await page.goto(`${base}/portal/`);
await page.click("a.main-action");
await page.fill("#f-url", "nonsense");
await page.evaluate(() => { document.querySelector("#f-url").type = "text"; });
await page.click("button[value=which]");
await page.waitForSelector("#w-url");
await scan("where, with what is wrong");
await page.fill("#f-url", receiver);
await page.fill("#f-name", "New one");
await page.click("button[value=which]");
await page.click("button[value=where]");
ensure(await page.inputValue("#f-name") === "New one", "three steps", "going back loses what was typed");
await page.click("button[value=which]");
await page.check("input[value='order.paid']");
ensure(await page.isChecked("input[value='some']"), "three steps", "picking a type does not mean only some");
await page.click("button[value=create]");
await page.waitForSelector("#secret-title");
const secret = await page.textContent(".secret code");
ensure(/^whsec_/.test(secret), "three steps", `the secret is ${secret}`);
ensure(await page.locator("details[name=verify]").count() === 5, "three steps", "there are not five languages");
await page.click("text=Send test");
await page.waitForSelector("#tested .notice.good");
ensure(/answered 200/.test(await page.textContent("#tested")), "three steps", `the test says ${await page.textContent("#tested")}`);
ensure(await page.textContent(".secret code") === secret, "three steps", "the secret is gone after the test");
await page.screenshot({ path: `${pictures}/secret-light.png`, fullPage: true });
await scan("secret");
await page.click("text=Done");
await page.waitForURL((url) => url.pathname.startsWith("/portal/endpoints/sub_"));
const made = new URL(page.url()).pathname;
page.at("catalogue");
await page.goto(`${base}/portal/event-types/order.created`);
await page.selectOption("#s-endpoint", made.split("/").pop());
await page.click("form[data-inline] button");
await page.waitForSelector("#tested .notice.good");

// ---- settings, secret, pause ----
page.at("settings");
await page.goto(base + made);
await page.fill("#f-headers", "X-Team: {billing}");
await page.fill("#f-rate", "50");
await page.click("#settings .main-action");
await page.waitForURL((url) => url.search.includes("done=changed"));
ensure((await page.inputValue("#f-headers")).trim() === "X-Team: {billing}", "settings", `headers are ${await page.inputValue("#f-headers")}`);
await page.click("text=Show the secret");
await page.waitForSelector(".secret code");
ensure(await page.textContent(".secret code") === secret, "secret", "another one is shown");
await scan("endpoint with its secret");
page.at("rotate");
await page.click("#secret summary");
await page.click("#secret details button");
await page.waitForSelector("h1:has-text('new signing secret')");
ensure(await page.textContent(".secret code") !== secret, "rotate", "it is the old one");
await page.click("text=Done");
await page.click("text=Pause");
await page.waitForURL((url) => url.search.includes("done=paused"));
await page.click("text=Resume");
await page.waitForURL((url) => url.search.includes("done=resumed"));

// ---- send again: one, then what is left ----
page.at("resend");
await page.goto(base + failed);
ensure(/maintenance <script>/.test(await page.textContent("main")), "resend", "the response is not shown");
await page.click("text=Send again");
await page.waitForURL((url) => url.search.includes("done=resent"));
for (let tries = 0; tries < 50 && !/delivered/.test(await page.textContent(".bar")); tries += 1) { await page.waitForTimeout(200); await page.goto(base + failed.split("?")[0]); }
ensure(/delivered/.test(await page.textContent(".bar")), "resend", "it is not delivered");
page.at("recover");
await page.goto(base + warehouse);
await page.click("button[value=count]");
await page.waitForSelector("button[value=start]");
ensure(/would be sent again: 3\./.test(await page.textContent("#recover")), "recover", `the count is ${await page.textContent("#recover .notice")}`);
await scan("recover, with the count");
await page.click("button[value=start]");
await page.waitForURL((url) => url.pathname.startsWith("/portal/jobs/"));
await page.waitForSelector("#live .state.good");
await scan("job");
ensure(/^Sent again: 3\./.test(await page.textContent("#live [role=status]")), "recover", `the job says ${await page.textContent("#live")}`);

// ---- notifications, languages, deleting ----
page.at("notifications");
await page.goto(`${base}/portal/notifications`);
await page.fill("#f-url", `${receiver}-told`);
await page.click("form.panel .main-action");
await page.waitForSelector(".secret code");
await page.goto(`${base}/portal/notifications`);
ensure(await page.locator("tr[data-row]").count() === 1, "notifications", "the address is not there");
ensure(await page.evaluate(async () => { const text = await (await fetch("/portal/")).text(); return !text.includes("-told"); }), "notifications", "it is an endpoint");
page.at("languages");
for (const [code, word] of [["nl", "Berichten"], ["de", "Nachrichten"], ["fr", "Messages"], ["ja", "メッセージ"]]) {
  await page.goto(`${base}/portal/messages?lang=${code}`);
  ensure(await page.getAttribute("html", "lang") === code && await page.textContent("h1") === word, "languages", `${code} has ${await page.textContent("h1")}`);
}
await page.goto(`${base}/portal/`);
ensure(await page.getAttribute("html", "lang") === "ja", "languages", "the choice is not kept");
await page.selectOption("#look-lang", "en");
await page.selectOption("#look-theme", "dark");
await page.click(".foot form.inline-form button");
await page.waitForSelector("html[data-theme=dark][lang=en]");
page.at("delete");
await page.goto(base + made);
await page.click("details.panel > summary");
await page.check("input[name=confirm]");
await page.click("button.danger");
await page.waitForURL((url) => url.search.includes("done=deleted"));
for (const broken of await page.evaluate(() => window.broken)) find("ways", `breaks its policy: ${broken}`);

// ---- in a frame of another site: where it is allowed, and where not ----
const framing = (src) => `<!doctype html><html lang="en"><title>shop</title><body><iframe src="${src}" width="900" height="300"></iframe><script>
  window.told = []; addEventListener("message", (event) => window.told.push(event.data));</script></body></html>`;
let shown = "";
const serve = (port) => new Promise((resolve) => { const server = createServer((_, answer) => { answer.setHeader("content-type", "text/html"); answer.end(framing(shown)); }); server.listen(port, "127.0.0.1", () => resolve(server)); });
const allowed = await serve(Number(site));
const other = await serve(0);
const guest = await open();
guest.page.at("frame");
shown = (await link()).replace("/portal#", "/portal?darkMode=true&primaryColor=28bb93&fontFamily=Georgia&icon=javascript:alert(1)#");
await guest.page.goto(`http://localhost:${site}/`);
const inside = guest.page.frameLocator("iframe");
await inside.locator("h1", { hasText: "Endpoints" }).waitFor();
ensure(await inside.locator("html").getAttribute("data-theme") === "dark", "frame", "darkMode is not honoured");
ensure((await inside.locator("html").evaluate((root) => getComputedStyle(root).getPropertyValue("--accent"))).trim() === "#28bb93", "frame", "primaryColor is not honoured");
ensure(/Georgia/.test(await inside.locator("body").evaluate((body) => getComputedStyle(body).fontFamily)), "frame", "fontFamily is not honoured");
await inside.locator("nav a", { hasText: "Messages" }).click();
await inside.locator("h1", { hasText: "Messages" }).waitFor();
const kept = (await guest.context.cookies()).find((one) => one.name === "posthorn-portal");
ensure(kept?.sameSite === "None" && kept.secure && kept.partitionKey, "frame", `the cookie is ${JSON.stringify(kept)}`);
const told = await guest.page.evaluate(() => window.told);
ensure(told.some((one) => one.type === "svix.iframe-resizer-height" && one.payload.height > 100), "frame", `the page around it heard ${JSON.stringify(told)}`);
await guest.context.close();
const refused = await browser.newContext();
const outside = await refused.newPage();
shown = await link();
await outside.goto(`http://localhost:${other.address().port}/`);
await outside.waitForTimeout(1000);
const texts = await Promise.all(outside.frames().slice(1).map((frame) => frame.evaluate(() => document.body?.innerText || "").catch(() => "")));
ensure(!texts.some((text) => /Endpoints|One moment/.test(text)), "frame elsewhere", `shows ${texts}`);
await refused.close();
allowed.close();
other.close();

// ---- pictures for the documentation ----
if (process.env.IMAGES) {
  const own = await open({ viewport: { width: 1100, height: 560 } });
  await own.page.goto(await link());
  await own.page.waitForURL((url) => url.pathname === "/portal/");
  await own.page.screenshot({ path: `${process.env.IMAGES}/portal-endpoints.png` });
  await chosen(own.page);
  await own.page.screenshot({ path: `${process.env.IMAGES}/portal-new-endpoint.png` });
  await own.context.close();
}

// ---- logging out ends it for every tab ----
page.at("logout");
const tab = await context.newPage();
await page.goto(`${base}/portal/`);
await page.click("text=Log out");
await page.waitForURL((url) => url.pathname === "/portal/left");
await scan("left");
await tab.goto(`${base}/portal/messages`);
ensure(/session has ended/.test(await tab.textContent("h1")), "logout", "another tab is still in");

await browser.close();
for (const finding of findings) console.log(finding);
console.log(`${pages.length} pages, ${findings.length} findings`);
process.exit(findings.length ? 1 : 0);
