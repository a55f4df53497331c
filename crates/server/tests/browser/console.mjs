// Walks through the console in a real browser: every page loads under its policy without a word of complaint, is
// accessible in both themes, and can be read without scripts. Then the way from a dead letter to its retry, by
// keyboard alone.
//
//   node console.mjs URL KEY TENANT PICTURES
//
// With SHORT set only what depends on the store: pages in one theme, and the ways.
//
// Prints one line for each finding, and ends with 1 when there is any.
import { createRequire } from "node:module";
import { readFileSync, mkdirSync } from "node:fs";

const require = createRequire(process.env.BROWSER_PACKAGES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [base, key, tenant, pictures] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });

const findings = [];
const find = (where, what) => findings.push(`${where}: ${what}`);
const ensure = (condition, where, what) => { if (!condition) find(where, what); };

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  let place = "start";
  page.at = (where) => { place = where; };
  page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !/status of 40[0-9]/.test(message.text())) find(place, `console: ${message.text()}`); });
  page.on("pageerror", (error) => find(place, `script: ${error.message}`));
  page.on("request", (request) => { if (!request.url().startsWith(base) && !request.url().startsWith("data:")) find(place, `asks ${request.url()}`); });
  return { context, page };
}

async function login(page, next = "/console/") {
  page.at("login");
  await page.goto(base + next);
  await page.fill("#key", key);
  await page.click("button");
  await page.waitForURL((url) => !url.pathname.endsWith("/login"));
}

async function check(page, where) {
  // The scanner runs outside of the page's policy, in a world of its own.
  const results = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    return window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
  }, axe).catch((error) => ({ violations: [], failed: error.message }));
  if (results.failed) find(where, `axe: ${results.failed}`);
  for (const violation of results.violations) {
    find(where, `axe: ${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}`);
  }
}

const home = `/console/t/${tenant}`;
const { context, page } = await open();
await login(page);
const first = async (path, selector) => { await page.goto(base + path); return page.getAttribute(selector, "href"); };
const event = await first(`${home}/events`, "tr[data-row] a[data-open]");
const dead = await first(`${home}/dead-letters`, "tr[data-row] a[data-open]");
const subscription = await first(`${home}/subscriptions`, "tr[data-row] a[data-open]");
const one = await first("/console/tenants", "tr[data-row] a[data-open]");
const pages = [
  ["overview", "/console/"], ["tenant", home], ["events", `${home}/events`], ["event", event], ["publish", `${home}/events/new`],
  ["deliveries", `${home}/deliveries`], ["filtered", `${home}/deliveries?state=dead&status=5xx`], ["wrong-filter", `${home}/deliveries?status=abc`],
  ["all-that-match", `${home}/deliveries/matching?state=dead`], ["delivery", dead], ["dead-letters", `${home}/dead-letters`], ["redrive", `${home}/dead-letters/redrive`],
  ["subscriptions", `${home}/subscriptions`], ["subscription", subscription], ["filter", `${subscription}/filter`], ["new-subscription", `${home}/subscriptions/new`], ["jobs", `${home}/jobs`],
  ["certificates", `${home}/certificates`], ["tenants", "/console/tenants"], ["one-tenant", one], ["realms", "/console/realms"], ["keys", "/console/keys"],
  ["new-key", "/console/keys/new"], ["event-types", "/console/event-types"], ["audit", "/console/audit"], ["system", "/console/system"],
  ["config", "/console/system/config?q=engine"], ["explain", "/console/system/explain?code=unknown_topic"], ["push", "/console/push"],
  ["topics", `${home}/topics`], ["topic", `${home}/topics/orders`], ["pca-hub", `${home}/pca-hub`], ["notificaties", "/console/t/notificaties/notificaties"],
  ["efgs", "/console/t/efgs/efgs"], ["cedros", "/console/t/cedros/cedros"],
];

// The policy is what the server says; breaking it is told by the browser.
const short = Boolean(process.env.SHORT);
for (const scheme of short ? ["light"] : ["light", "dark"]) {
  const { context: own, page: tab } = await open({ colorScheme: scheme, bypassCSP: false, storageState: await context.storageState() });
  await tab.addInitScript(() => { window.broken = []; document.addEventListener("securitypolicyviolation", (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`)); });
  for (const [name, path] of pages) {
    const where = `${name} (${scheme})`;
    tab.at(where);
    const answer = await tab.goto(base + path, { waitUntil: "load" });
    ensure(answer.status() < 500, where, `answers ${answer.status()}`);
    const policy = answer.headers()["content-security-policy"] || "";
    ensure(policy.includes("default-src 'none'") && !policy.includes("unsafe"), where, `its policy is ${policy}`);
    ensure(await tab.locator("h1").count() === 1, where, "has not one h1");
    await tab.waitForTimeout(150);
    for (const broken of await tab.evaluate(() => window.broken)) find(where, `breaks its policy: ${broken}`);
    await tab.screenshot({ path: `${pictures}/${name}-${scheme}.png` });
  }
  await own.close();
  if (short) continue;
  const { context: scanned, page: patient } = await open({ colorScheme: scheme, bypassCSP: true, storageState: await context.storageState() });
  for (const [name, path] of pages) {
    patient.at(`${name} (${scheme})`);
    await patient.goto(base + path, { waitUntil: "load" });
    await check(patient, `${name} (${scheme})`);
  }
  await scanned.close();
}

// Narrow, and without scripts.
const small = short ? [] : pages;
const narrow = await open({ viewport: { width: 320, height: 640 }, storageState: await context.storageState() });
for (const [name, path] of small) {
  narrow.page.at(`${name} (320 px)`);
  await narrow.page.goto(base + path, { waitUntil: "load" });
  const wide = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
  ensure(wide <= 321, `${name} (320 px)`, `is ${wide} px wide`);
}
await narrow.page.screenshot({ path: `${pictures}/narrow.png` });
await narrow.context.close();
const plain = await open({ javaScriptEnabled: false, storageState: await context.storageState() });
for (const [name, path] of small) {
  await plain.page.goto(base + path);
  ensure((await plain.page.textContent("main")).trim().length > 20, `${name} (no scripts)`, "shows nothing");
}
await plain.context.close();

// By keyboard alone: find a dead letter, understand it, retry it.
page.at("keyboard");
await page.goto(base + "/console/");
await page.keyboard.press("g");
await page.keyboard.press("x");
await page.waitForURL((url) => url.pathname.endsWith("/dead-letters"));
await page.keyboard.press("j");
await page.keyboard.press("o");
await page.waitForURL((url) => url.pathname.includes("/deliveries/dlv_"));
const told = await page.textContent(".timeline");
ensure(/Attempt 1/.test(told) && /Dead/.test(told), "keyboard", `the timeline says ${told}`);
await page.locator("button", { hasText: "Retry now" }).focus();
await page.keyboard.press("Enter");
await page.waitForURL((url) => url.search.includes("done=retried"));
ensure(await page.locator(".notice.good").count() === 1, "keyboard", "nothing says that it is tried again");
await page.keyboard.press("?");
ensure(await page.locator("dialog[open]").count() === 1, "keyboard", "there is no help");
await page.keyboard.press("Escape");

// Logging out ends it for every tab.
const other = await context.newPage();
await other.goto(base + "/console/");
await page.locator("button", { hasText: "Log out" }).click();
await page.waitForURL((url) => url.pathname.endsWith("/login"));
await other.goto(base + "/console/");
ensure(other.url().includes("/login"), "logout", "another tab is still logged in");

await browser.close();
for (const finding of findings) console.log(finding);
console.log(`${pages.length} pages, ${findings.length} findings`);
process.exit(findings.length ? 1 : 0);
