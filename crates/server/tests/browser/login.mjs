// Logs in to the console in a real browser, with a provider of identities on another site: the way there and back, with
// and without scripts; a form whose session has ended; logging out; somebody who has no rights.
//
//   node login.mjs URL KEY PICTURES in|nobody
//
// Prints one line for each finding, and ends with 1 when there is any.
import { mkdirSync } from "node:fs";
import { check as scanned, end, ensure, headed, launch, narrow, open as tab } from "./walk.mjs";

const [base, key, pictures, phase] = process.argv.slice(2);
mkdirSync(pictures, { recursive: true });
const browser = await launch();
// The provider is on another site of this machine.
const open = (options = {}) => tab(browser, { base, beside: /^(data:|http:\/\/(127\.0\.0\.1|localhost)[:/])/ }, { viewport: { width: 1000, height: 700 }, ...options });

// What the scanner says, and whether a narrow window holds it.
async function check(page, name, colorScheme, h1) {
  await headed(page, name, h1);
  await scanned(page, `${name} (${colorScheme})`, colorScheme);
  await page.screenshot({ path: `${pictures}/${name}-${colorScheme}.png` });
  await narrow(page, name);
}

const button = (page) => page.locator("a.button", { hasText: "Log in with Example" });
const isAt = (path) => (url) => url.href === base + path;

if (phase === "nobody") {
  for (const colorScheme of ["light", "dark"]) {
    const { context, page } = await open({ colorScheme });
    page.at("nobody");
    page.fails((url) => new URL(url).pathname.endsWith("/callback"));
    await page.goto(base + "/console/audit");
    await button(page).click();
    await page.waitForURL((url) => url.pathname.endsWith("/callback"));
    const text = await page.textContent("main");
    ensure(/none of your groups has rights/.test(text) && /guests/.test(text), "nobody", `the page says ${text}`);
    await check(page, "no-rights", colorScheme, "Not allowed");
    await page.locator("a", { hasText: "To the login" }).click();
    await button(page).waitFor();
    await context.close();
  }
} else {
  for (const colorScheme of ["light", "dark"]) {
    const { context, page } = await open({ colorScheme });
    await page.goto(base + "/console/audit?action=session");
    await check(page, "login", colorScheme, /Log in/);
    await page.goto(base + "/console/login?next=%2Fconsole%2Fkeys%3Fdone%3Dunsent");
    await check(page, "login-unsent", colorScheme, /Log in/);
    await context.close();
  }
  // From another site and back: the page that was wanted, with its query.
  for (const javaScriptEnabled of [true, false]) {
    const where = javaScriptEnabled ? "login" : "login without scripts";
    const { context, page } = await open({ javaScriptEnabled });
    await page.goto(base + "/console/audit?action=session");
    await button(page).click();
    await page.waitForURL(isAt("/console/audit?action=session"));
    ensure((await page.textContent("main")).includes("jo@example.com"), where, "the log does not show who logged in");
    const cookies = await context.cookies(base + "/console/");
    const session = cookies.find((cookie) => cookie.name === "posthorn-console");
    ensure(session && session.httpOnly && session.sameSite === "Strict", where, `the session's cookie is ${JSON.stringify(session)}`);
    ensure(!cookies.some((cookie) => cookie.name === "posthorn-login"), where, "the cookie of the login is still there");
    await context.close();
  }
  // A form whose session has ended while it was filled in.
  const { context, page } = await open();
  await page.goto(base + "/console/tenants/new");
  await button(page).click();
  await page.waitForURL(isAt("/console/tenants/new"));
  const listed = await (await fetch(base + "/v1/sessions?kind=console", { headers: { authorization: `Bearer ${key}` } })).json();
  for (const session of listed.items) await fetch(`${base}/v1/sessions/${session.id}`, { method: "DELETE", headers: { authorization: `Bearer ${key}` } });
  await page.fill("input[name=name]", "made-later");
  await page.locator("main button.main-action").click();
  await page.waitForURL((url) => url.pathname === "/console/login");
  ensure(/the form was not sent/.test(await page.textContent("main")), "unsent", "the login does not say that the form was not sent");
  await button(page).click();
  await page.waitForURL(isAt("/console/tenants/new?done=unsent"));
  const told = await page.textContent("main");
  ensure(/was not sent. Please send it again/.test(told), "unsent", `the page says ${told}`);
  await page.screenshot({ path: `${pictures}/unsent.png` });
  await page.fill("input[name=name]", "made-later");
  await page.locator("main button.main-action").click();
  await page.waitForURL((url) => /^\/console\/tenants\/ten_/.test(url.pathname));
  // Out of one tab is out of all; the provider lets one in again.
  const other = await context.newPage();
  await other.goto(base + "/console/");
  await page.locator("button", { hasText: "Log out" }).click();
  await page.waitForURL((url) => url.pathname === "/console/login");
  await other.goto(base + "/console/audit");
  ensure(other.url().includes("/login"), "logout", "another tab is still logged in");
  await button(other).click();
  await other.waitForURL(isAt("/console/audit"));
  await context.close();
}

await browser.close();
end(phase);
