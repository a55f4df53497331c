// Walks through the console in a real browser: every page has its status and its heading, loads under its policy without
// a word of complaint, is accessible in both themes with everything unfolded, fits into a narrow window, and can be read
// without scripts. Then what forms lead to, what somebody sees who may only look, and the console by keyboard alone.
//
//   node console.mjs URL KEY TENANT PICTURES
//
// With SHORT set only what depends on the store: pages in one theme, and the ways. With AWAY set, the store does not
// answer, and only the page that says so is looked at.
//
// Prints one line for each finding, and ends with 1 when there is any.
import { existsSync, mkdirSync } from "node:fs";
import { check, end, ensure, go, headed, launch, narrow, open, part, scan, until } from "./walk.mjs";

const [base, key, tenant, pictures] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });
const short = Boolean(process.env.SHORT);
const state = `${pictures}/state.json`;
const browser = await launch();
const tab = (options) => open(browser, { base }, options);

if (process.env.AWAY) {
  ensure(existsSync(state), "store away", "nobody has logged in before");
  for (const colorScheme of ["light", "dark"]) {
    const { context, page } = await tab({ colorScheme, storageState: state });
    // The page looks again by itself, which must not happen while it is looked at.
    await page.route("**/*", (route, request) => (request.isNavigationRequest() && request.url() !== page.first ? route.abort() : route.continue()));
    for (const path of ["/console/", `/console/t/${tenant}/deliveries`]) {
      page.first = base + path;
      await go(page, `store away (${colorScheme})`, base + path, { status: 503, h1: "The store does not answer" });
      await check(page, `store away (${colorScheme})`, colorScheme);
      await narrow(page, "store away");
    }
    await page.screenshot({ path: `${pictures}/away-${colorScheme}.png` });
    await context.close();
  }
  await browser.close();
  end("store away");
}

const home = `/console/t/${tenant}`;
const login = async (page, own) => {
  page.at("login");
  await page.goto(`${base}/console/`);
  await page.fill("#key", own);
  await page.click("button");
  await page.waitForURL((url) => !url.pathname.endsWith("/login"));
};
const { context, page } = await tab();
await login(page, key);
await context.storageState({ path: state });
const first = async (path, selector = "tr[data-row] a[data-open]") => { await page.goto(base + path); return page.getAttribute(selector, "href"); };
const event = await first(`${home}/events`);
const dead = await first(`${home}/dead-letters`);
const subscription = await first(`${home}/subscriptions`, "tr[data-row]:has-text('works') a[data-open]");
const certificate = await first(`${home}/certificates`);
const one = await first("/console/tenants", "tr[data-row]:has-text('acme') a[data-open]");
// An agent of Web Push with a channel, connected for as long as the walk takes.
const socket = await context.newPage();
const agent = await socket.evaluate((url) => new Promise((done, failed) => {
  const own = window.own = new WebSocket(url);
  own.onerror = () => failed(new Error("no socket"));
  own.onopen = () => own.send(JSON.stringify({ messageType: "hello", use_webpush: true }));
  own.onmessage = ({ data }) => {
    const said = JSON.parse(data);
    if (said.messageType === "hello") { window.uaid = said.uaid; own.send(JSON.stringify({ messageType: "register", channelID: "deadbeef-0000-4000-8000-000000000001" })); }
    if (said.messageType === "register") done(window.uaid);
  };
}), base.replace("http", "ws") + "/");
const type = "/console/event-types/default/order.paid";
// Name, path, heading, and the status where it is another than 200.
const pages = [
  ["overview", "/console/", "Overview"], ["tenant", home, tenant], ["events", `${home}/events`, "Events"], ["event", event, "order.paid"], ["publish", `${home}/events/new`, "Publish an event"],
  ["deliveries", `${home}/deliveries`, "Deliveries"], ["filtered", `${home}/deliveries?state=dead&status=5xx`, "Deliveries"], ["wrong-filter", `${home}/deliveries?status=abc`, "Deliveries", 400],
  ["all-that-match", `${home}/deliveries/matching?state=dead`, "All that match"], ["delivery", dead, "order.paid → acme-erp"], ["dead-letters", `${home}/dead-letters`, "Dead letters"],
  ["redrive-new", `${home}/dead-letters/redrive`, "Retry dead letters"], ["subscriptions", `${home}/subscriptions`, "Subscriptions"], ["subscription", subscription, "works"],
  ["filter", `${subscription}/filter`, "Filter of works"], ["new-subscription", `${home}/subscriptions/new`, "New subscription"], ["jobs", `${home}/jobs`, "Jobs"],
  ["certificates", `${home}/certificates`, "Certificates"], ["certificate", certificate, "of the hub"], ["new-certificate", `${home}/certificates/new`, "Register a certificate"],
  ["tenants", "/console/tenants", "Tenants"], ["one-tenant", one, "acme"], ["new-tenant", "/console/tenants/new", "New tenant"],
  ["realms", "/console/realms", "Realms"], ["realm", "/console/realms/default", "default"], ["keys", "/console/keys", "Keys"], ["new-key", "/console/keys/new", "New key"],
  ["event-types", "/console/event-types", "Event types"], ["event-type", type, "order.paid"], ["new-event-type", "/console/event-types/new", "New event type"],
  ["change-event-type", `${type}/change`, "Change order.paid"], ["import-event-types", "/console/event-types/import", "Import event types"],
  ["audit", "/console/audit", "Audit"], ["system", "/console/system", "System"], ["config", "/console/system/config?q=engine", "Configuration"],
  ["explain", "/console/system/explain?code=unknown_topic", "Explain a code"], ["push", "/console/push", "Push"], ["push-agent", `/console/push/agents/${agent}`, "Agent"],
  ["topics", `${home}/topics`, "Topics"], ["topic", `${home}/topics/orders`, "orders"], ["pca-hub", `${home}/pca-hub`, "PCA Hub"],
  ["notificaties", "/console/t/notificaties/notificaties", "Notificaties"], ["efgs", "/console/t/efgs/efgs", "EFGS callbacks"], ["cedros", "/console/t/cedros/cedros", "Cedros webhooks"],
  ["lost", "/console/nothing", "Not found", 404],
];

for (const scheme of short ? ["light"] : ["light", "dark"]) {
  await part(`pages (${scheme})`, async () => {
    const { context: own, page } = await tab({ colorScheme: scheme, storageState: state });
    for (const [name, path, h1, status] of pages) {
      const where = `${name} (${scheme})`;
      await go(page, where, base + path, { h1, status });
      await page.screenshot({ path: `${pictures}/${name}-${scheme}.png` });
      if (short) continue;
      await check(page, where, scheme);
      if (scheme === "light") await narrow(page, name);
    }
    await own.close();
  });
}
if (!short) await part("without scripts", async () => {
  const { context: own, page } = await tab({ javaScriptEnabled: false, storageState: state });
  for (const [name, path, h1, status] of pages) {
    await go(page, `${name} (no scripts)`, base + path, { h1, status });
    ensure(await page.locator("[data-scripted]:visible").count() === 0, `${name} (no scripts)`, "shows what only a script can do");
  }
  await own.close();
});

// Whoever may only look sees pages without a form that changes anything, and is told so where there is none for them.
if (!short) await part("read only", async () => {
  const made = await fetch(`${base}/v1/keys`, { method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: JSON.stringify({ tenant, scopes: ["read"] }) });
  const reader = await tab();
  await login(reader.page, (await made.json()).key);
  ensure(new URL(reader.page.url()).pathname === home, "read only", `begins at ${reader.page.url()}`);
  const manages = new Set(["publish", "all-that-match", "redrive-new", "filter", "new-subscription", "new-certificate", "new-event-type", "change-event-type", "import-event-types"]);
  for (const [name, path, h1, status] of pages) {
    if (!path.startsWith(home) && !/event-type|audit/.test(name)) continue;
    const where = `${name} (read only)`;
    await go(reader.page, where, base + path, manages.has(name) ? { h1: "Not allowed", status: 403 } : { h1, status });
    ensure(await reader.page.locator("form[method=post]:not([action='/console/logout']):has(input[name=csrf])").count() === 0, where, "has a form that changes something");
    await check(reader.page, where);
  }
  for (const path of ["/console/system", "/console/keys", "/console/tenants"]) await go(reader.page, `${path} (read only)`, base + path, { h1: "Not allowed", status: 403 });
  await reader.context.close();
});

// By keyboard alone: find a dead letter, understand it, retry it.
const focus = (what) => page.evaluate((what) => document.activeElement.matches(what), what);
const tabTo = async (what, most = 80) => {
  for (let presses = 0; presses < most; presses++) { await page.keyboard.press("Tab"); if (await focus(what)) return; }
  ensure(false, "keyboard", `${what} is not reached by Tab`);
};
await part("keyboard", async () => {
  page.at("keyboard");
  await page.goto(base + "/console/");
  // The first stop leads past the navigation.
  await page.keyboard.press("Tab");
  ensure(await focus("a.skip") && await page.locator("a.skip").isVisible(), "keyboard", "the first stop is not the link past the navigation");
  await page.keyboard.press("Enter");
  await until("the content has the focus", () => focus("#content"));
  await page.keyboard.press("Tab");
  ensure(await page.evaluate(() => document.activeElement.closest("#content") !== null), "keyboard", "behind the link past the navigation comes something else");
  // A field takes what is typed; Esc leaves it.
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("x");
  await page.waitForURL((url) => url.pathname.endsWith("/dead-letters"));
  // Rows, one by one, and back.
  const row = () => page.evaluate(() => [...document.querySelectorAll("tr[data-row] a[data-open]")].indexOf(document.activeElement));
  for (const [pressed, wanted] of [["j", 0], ["j", 1], ["k", 0], ["k", 0]]) {
    await page.keyboard.press(pressed);
    ensure(await row() === wanted, "keyboard", `${pressed} leads to row ${await row()} in place of ${wanted}`);
  }
  await page.keyboard.press("o");
  await page.waitForURL((url) => url.pathname.includes("/deliveries/dlv_"));
  const told = await page.textContent(".timeline");
  ensure(/Attempt 1/.test(told) && /Dead/.test(told), "keyboard", `the timeline says ${told}`);
  await tabTo("form[action$='/retry'] button");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.search.includes("done=retried"));
  ensure(await page.locator(".notice.good").count() === 1, "keyboard", "nothing says that it is tried again");
});
await part("help and keys", async () => {
  page.at("help");
  await page.goto(`${base}${home}/deliveries`);
  // The search field takes what is typed, keys included.
  await page.keyboard.press("/");
  ensure(await focus("[data-search]"), "help", "/ does not lead to the search field");
  await page.keyboard.type("j?t");
  ensure(await page.inputValue("[data-search]") === "j?t" && await page.locator("dialog[open]").count() === 0, "help", "keys work while one types");
  await page.keyboard.press("Escape");
  ensure(!await focus("[data-search]"), "help", "Esc does not leave the search field");
  // The help takes the focus, and gives it back to where it was.
  await page.keyboard.press("j");
  const before = await page.evaluate(() => document.activeElement.outerHTML);
  await page.keyboard.press("?");
  ensure(await page.locator("dialog[open]").count() === 1, "help", "there is no help");
  ensure(await page.evaluate(() => document.activeElement.closest("dialog") !== null), "help", "the focus is not in it");
  if (!short) await scan(page, "help");
  for (let presses = 0; presses < 8; presses++) {
    await page.keyboard.press("Tab");
    ensure(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest("dialog") !== null), "help", "the focus leaves it");
  }
  await page.keyboard.press("Escape");
  ensure(await page.locator("dialog[open]").count() === 0, "help", "Esc does not close it");
  ensure(await page.evaluate(() => document.activeElement.outerHTML) === before, "help", "the focus is not where it was");
  // Keys can be switched off, and on again.
  const toggle = async () => { await page.locator("[data-help]").click(); await page.locator("[data-keys-button]").click(); await page.locator("[data-close]").click(); };
  await toggle();
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await page.keyboard.press("j");
  ensure(await page.locator("dialog[open]").count() === 0 && !await focus("a[data-open]"), "help", "keys that are off still work");
  await page.reload();
  await page.keyboard.press("?");
  ensure(await page.locator("dialog[open]").count() === 0, "help", "keys that are off are on after a reload");
  await toggle();
  await page.keyboard.press("?");
  ensure(await page.locator("dialog[open]").count() === 1, "help", "keys that are on again do not work");
  await page.keyboard.press("Escape");
});

// What forms lead to. One is asked first, also without scripts.
if (!short) await part("forms", async () => {
  page.on("dialog", (dialog) => dialog.accept());
  const sent = async (where, button, h1) => {
    page.at(where);
    await Promise.all([page.waitForLoadState("load"), page.waitForEvent("framenavigated"), page.locator(`main ${button}`).first().click()]);
    await headed(page, where, h1);
    await scan(page, where);
  };
  page.fails("/console/keys/new");
  await page.goto(`${base}/console/keys/new`);
  await sent("a key that cannot be", "button.main-action", "New key");
  await page.check("input[value=read]");
  await page.fill("#f-tenant", tenant);
  await page.fill("#f-description", "made in a browser");
  await sent("key made", "button.main-action", "The new key");
  await page.goto(`${base}/console/keys`);
  const made = "tr[data-row]:has-text('made in a browser')";
  await sent("revoke a key?", `${made} form button`, "Revoke this key?");
  await sent("key revoked", "button.danger", "Keys");
  ensure(/revoked/.test(await page.textContent(made)), "key revoked", "it still works");
  await page.goto(base + one);
  await sent("portal link", "form[action$='/portal-link'] button", "Portal link");
  await page.goto(`${base}${home}/subscriptions/new`);
  await page.fill("#s-url", "http://127.0.0.1:9/none");
  await page.fill("#s-topics", "none");
  await sent("secret", "button.main-action", "The signing secret");
  await page.goto(base + subscription);
  await sent("rotate?", "form[action$='/rotate'] button", "Rotate the signing secret?");
  await sent("rotated", "button.danger", "The new signing secret");
  await page.goto(base + event);
  await sent("publish again?", "form[action$='/republish'] button", "Publish this event again?");
  await page.goto(base + certificate);
  await sent("revoke a certificate?", "form[action$='/revoke'] button", "Revoke this certificate?");
  await page.goto(`${base}${home}/deliveries?state=dead`);
  await page.locator("#rows tbody input").nth(0).check();
  await sent("selected rows", "button[value=cancel], button[value=forget]", /./);
  await page.goto(base + subscription);
  await page.selectOption("#r-status", "delivered");
  await sent("replay, counted", "#replay button", "works");
  await sent("job", "#replay button.main-action", /./);
  ensure(page.url().includes("/jobs/"), "job", `is at ${page.url()}`);
  await page.goto(`${base}${home}/dead-letters/redrive`);
  await sent("redrive", "button.main-action", /./);
  ensure(page.url().includes("/redrives/"), "redrive", `is at ${page.url()}`);
  await page.emulateMedia({ colorScheme: "light" });
});

// Nothing moves for those who do not want that: what is new appears, and is not highlighted over time.
await part("reduced motion", async () => {
  for (const reducedMotion of ["no-preference", "reduce"]) {
    const own = await tab({ reducedMotion, storageState: state });
    own.page.at("reduced motion");
    await own.page.goto(`${base}${home}/deliveries`);
    const moving = await own.page.evaluate(() => {
      document.querySelector("#rows tbody tr").classList.add("new");
      return document.getAnimations().filter((own) => (own.effect.getComputedTiming().duration || 0) > 1).length;
    });
    ensure(reducedMotion === "reduce" ? moving === 0 : moving > 0, "reduced motion", `${moving} animations with ${reducedMotion}`);
    await own.context.close();
  }
});

// Logging out ends it for every tab.
await part("logout", async () => {
  page.at("logout");
  const other = await context.newPage();
  await page.goto(`${base}${home}/events`);
  await page.locator("button", { hasText: "Log out" }).click();
  await page.waitForURL((url) => url.pathname.endsWith("/login"));
  await other.goto(base + "/console/");
  ensure(other.url().includes("/login"), "logout", "another tab is still logged in");
});

// Somebody is still logged in when the store goes away.
const last = await tab();
await login(last.page, key);
await last.context.storageState({ path: state });
await browser.close();
end(`${pages.length} pages`);
