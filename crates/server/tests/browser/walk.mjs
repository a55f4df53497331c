// What all walks in a browser share: findings, tabs that notice every complaint, the scanner, and pages that must be what
// they are called.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(process.env.BROWSER_PACKAGES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const findings = [];
export const find = (where, what) => findings.push(`${where}: ${what}`);
export const ensure = (condition, where, what) => { if (!condition) find(where, what); };
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const until = async (what, probe, ms = 15000) => {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) { const found = await probe(); if (found) return found; }
  throw new Error(`in vain: ${what}`);
};

export const launch = (...args) => chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", ...args] });

// A part of the walk: what it throws is a finding, and how long it took is told.
export async function part(name, walk) {
  const began = Date.now();
  try { await walk(); } catch (error) { find(name, error.message.split("\n")[0]); }
  console.log(`${name}: ${Date.now() - began} ms`);
}

// Has a tab tell of every complaint of the browser. `page.at` says where it is; `page.fails` which requests are to fail:
// a complaint about any other is a finding, so that a missing file is noticed.
export function watch(page, { base, beside = /^data:/ }) {
  let place = "start";
  const failing = [];
  page.setDefaultTimeout(15000);
  page.at = (where) => { place = where; };
  page.fails = (path) => failing.push(typeof path === "string" ? (url) => url === base + path : path);
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    const expected = /the server responded with a status of/.test(message.text()) && failing.some((own) => own(message.location().url));
    if (!expected) find(place, `console: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => find(place, `script: ${error.message}`));
  page.on("request", (request) => { if (!request.url().startsWith(base) && !beside.test(request.url())) find(place, `asks ${request.url()}`); });
  return page;
}

// A tab of its own. Breaking the policy is told by the browser; the scanner comes with the page, outside of its policy.
export async function open(browser, own, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = watch(await context.newPage(), own);
  await page.addInitScript(() => { window.broken = []; document.addEventListener("securitypolicyviolation", (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`)); });
  await page.addInitScript(axe);
  return { context, page };
}

// Opens a page, which must have this status and this heading.
export async function go(page, where, url, { status = 200, h1 }) {
  page.at(where);
  if (status >= 400) page.fails((own) => own === url);
  const answer = await page.goto(url, { waitUntil: "load" });
  ensure(answer.status() === status, where, `answers ${answer.status()} in place of ${status}`);
  await headed(page, where, h1);
  const policy = answer.headers()["content-security-policy"] || "";
  ensure(policy.includes("default-src 'none'") && !policy.includes("unsafe"), where, `its policy is ${policy}`);
  return answer;
}

// One heading, which says this.
export async function headed(page, where, h1) {
  const heads = await page.locator("h1").allTextContents();
  const fits = heads.length === 1 && (h1 instanceof RegExp ? h1.test(heads[0]) : heads[0] === h1);
  ensure(fits, where, `is headed ${JSON.stringify(heads)} in place of ${h1}`);
}

// What the scanner says of a page with everything unfolded, and whether the page broke its policy. In the dark only colours
// are another matter.
const everything = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] };
const colours = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
export async function check(page, where, scheme = "light") {
  const results = await page.evaluate(async (runOnly) => {
    const folds = [...document.querySelectorAll("details")], before = folds.map((fold) => fold.open);
    for (const fold of folds) fold.open = true;
    const found = await window.axe.run(document, { runOnly, resultTypes: ["violations"] });
    folds.forEach((fold, at) => { fold.open = before[at]; });
    return { violations: found.violations.map(({ id, help, nodes }) => ({ id, help, nodes: nodes.map((node) => node.target.join(" ")) })), broken: window.broken };
  }, scheme === "dark" ? colours : everything).catch((error) => ({ violations: [], broken: [], failed: error.message }));
  if (results.failed) find(where, `axe: ${results.failed}`);
  for (const { id, help, nodes } of results.violations) find(where, `axe: ${id}: ${help}: ${nodes.slice(0, 3).join(", ")}`);
  for (const broken of results.broken) find(where, `breaks its policy: ${broken}`);
}

// A page that a form leads to cannot be opened again, so it changes its clothes.
export async function scan(page, where) {
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await check(page, `${where} (${colorScheme})`, colorScheme);
  }
}

// Whether a narrow window holds it.
export async function narrow(page, where) {
  const size = page.viewportSize();
  await page.setViewportSize({ width: 320, height: 640 });
  // Charts are drawn anew a moment later.
  await page.waitForFunction(() => document.documentElement.scrollWidth <= 321, null, { timeout: 1000 }).catch(() => {});
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  ensure(wide <= 321, `${where} (320 px)`, `is ${wide} px wide`);
  await page.setViewportSize(size);
}

// The last words; the process ends with 1 when there is any finding.
export function end(what) {
  for (const finding of findings) console.log(finding);
  console.log(`${what}: ${findings.length} findings`);
  process.exit(findings.length ? 1 : 0);
}
