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
import { createServer } from "node:http";
import { mkdirSync } from "node:fs";
import { check, end, ensure, find, go, headed, launch, narrow, open as tab, part, scan as scanned, until } from "./walk.mjs";

const [base, key, receiver, site, pictures] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });
const short = Boolean(process.env.SHORT);

// A browser that keeps nothing of a site within another: as people have it who block cookies of third parties.
const browser = await launch("--test-third-party-cookie-phaseout");
const open = async (options = {}) => {
  const opened = await tab(browser, { base, beside: /^(data:|http:\/\/localhost:)/ }, { locale: "en-GB", ...options });
  opened.page.setDefaultTimeout(20000);
  return opened;
};

async function link(more = {}) {
  const answer = await fetch(`${base}/v1/portal/links`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "posthorn-tenant": "acme", "content-type": "application/json" },
    body: JSON.stringify({ name: "Ann <b>", return_url: "https://app.example.com/settings", capabilities: ["view", "see_secret", "rotate_secret", "manage_endpoints", "resend"], ...more }),
  });
  return (await answer.json()).url;
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
used.page.fails("/portal/redeem");
used.page.fails("/portal/messages");
await used.page.goto(first);
await used.page.waitForSelector("text=does not work any more");
ensure(new URL(used.page.url()).pathname === "/portal/redeem" && !used.page.url().includes("lnk_"), "used link", `is at ${used.page.url()}`);
await used.page.goto(`${base}/portal/messages`);
ensure(/session has ended/.test(await used.page.textContent("h1")), "used link", "somebody is in");
const late = await link({ redeem_within: "1s" });
const over = Date.now() + 1100;
await until("the link to be too old", () => Date.now() > over);
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
// Name, path, heading, and the status where it is another than 200.
const pages = [
  ["endpoints", "/portal/", "Endpoints"], ["endpoint", warehouse, "Warehouse"], ["endpoint-week", `${production}?range=7d`, "Production"], ["new", "/portal/endpoints/new", "Add endpoint"],
  ["messages", "/portal/messages", "Messages"], ["filtered", "/portal/messages?type=order.paid&from=2026-01-01T00:00", "Messages"], ["wrong-filter", "/portal/messages?from=no", "Messages", 400], ["wrong-status", "/portal/attempts?status=abc", "Attempts", 400],
  ["message", message, "order.paid"], ["attempts", "/portal/attempts", "Attempts"], ["failed-attempt", failed, "Attempt 1"], ["attempt", worked, "Attempt 1"],
  ["event-types", "/portal/event-types", "Event types"], ["event-type", "/portal/event-types/order.created", "order.created"], ["notifications", "/portal/notifications", "Notifications"], ["lost", "/portal/nothing", "Not found", 404],
];
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
  await part(`pages (${scheme})`, async () => {
    const { context: own, page: tab } = await open({ colorScheme: scheme, storageState: await context.storageState() });
    const settled = async (where, name) => {
      await tab.screenshot({ path: `${pictures}/${name}-${scheme}.png`, fullPage: true });
      if (short) return;
      await check(tab, where, scheme);
      if (scheme === "light") await narrow(tab, name);
    };
    for (const [name, path, h1, status] of pages) {
      const where = `${name} (${scheme})`;
      await go(tab, where, base + path, { h1, status });
      await settled(where, name);
    }
    tab.at(`which (${scheme})`);
    await chosen(tab);
    await headed(tab, `which (${scheme})`, "Add endpoint");
    await settled(`which (${scheme})`, "which");
    await own.close();
    if (short) return;
    const stranger = await open({ colorScheme: scheme });
    await go(stranger.page, `outside (${scheme})`, `${base}/portal/messages`, { status: 401, h1: /session has ended/ });
    await check(stranger.page, `outside (${scheme})`, scheme);
    await stranger.context.close();
  });
}
if (!short) await part("without scripts", async () => {
  const plain = await open({ javaScriptEnabled: false, storageState: await context.storageState() });
  for (const [name, path, h1, status] of pages) {
    await go(plain.page, `${name} (no scripts)`, base + path, { h1, status });
    ensure(await plain.page.locator("[data-scripted]:visible").count() === 0, `${name} (no scripts)`, "shows what only a script can do");
  }
  await plain.context.close();
});

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
const scan = async (where) => { if (!short) await scanned(page, where); };
// A form that is refused is answered so.
page.fails("/portal/endpoints/new");
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
// The outcome comes by itself, and the page asks no more once it is there.
await page.evaluate(() => { window.same = true; });
await until("the outcome", async () => /delivered/.test(await page.textContent(".bar")));
ensure(await page.evaluate(() => window.same === true), "resend", "the page was loaded anew");
ensure(await page.locator("[data-live]").count() === 0, "resend", "the page goes on asking");
ensure(/200/.test(await page.textContent("#live")), "resend", "the new attempt is not shown");
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
const told_off = outside.waitForEvent("console", (message) => /frame-ancestors/.test(message.text()));
await outside.goto(`http://localhost:${other.address().port}/`);
await told_off;
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
page.fails("/portal/left");
const other_tab = await context.newPage();
await page.goto(`${base}/portal/`);
await page.click("text=Log out");
await page.waitForURL((url) => url.pathname === "/portal/left");
await scan("left");
await other_tab.goto(`${base}/portal/messages`);
ensure(/session has ended/.test(await other_tab.textContent("h1")), "logout", "another tab is still in");

await browser.close();
end(`${pages.length} pages`);
