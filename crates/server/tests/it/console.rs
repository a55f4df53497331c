//! The console in a real browser: Chromium, driven by playwright-core, with the checks of axe-core. What it walks through
//! is in `tests/browser/console.mjs`, and what operators do in `tests/browser/flows.mjs`. On both stores.

use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_testkit::authority::Pair;
use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use serde_json::json;

use crate::cedros_world::On;
use crate::console_browser::{Browser, leads};
use crate::door::admin_url;

/// The versions of what drives the browser.
const PACKAGES: [&str; 2] = ["playwright-core@1.65.0", "axe-core@4.14.0"];

/// Where the packages are; installed once for all tests.
pub(crate) fn packages() -> PathBuf {
    install("browser", &PACKAGES)
}

/// A folder with packages, made by whoever needs them first.
pub(crate) fn install(what: &str, packages: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = root.join(format!("{what}-{}", packages.join("-").replace(['@', '.'], "_")));
    if !place.join("node_modules").exists() {
        let half = root.join(format!("{what}-half-{}", std::process::id()));
        std::fs::create_dir_all(&half).expect("a folder");
        let flags =
            ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--no-save"];
        let mut npm = Command::new("npm");
        npm.arg("install").args(flags).arg("--prefix").arg(&half).args(packages);
        let output = npm.output().expect("npm, which ./test installs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Another test may have been faster.
        if std::fs::rename(&half, &place).is_err() {
            drop(std::fs::remove_dir_all(&half));
        }
    }
    place
}

/// Something to look at: events, a receiver that works, one that fails, one that nothing matches, and what strangers may
/// write in every field they can.
fn furnish(server: &Server) -> (Receiver, Receiver) {
    let good = Receiver::new(200);
    let bad = Receiver::new(Answer::from(503).body("maintenance <script>alert(1)</script>"));
    let markup = "<img src=x onerror=alert(1)>";
    server.call("PUT", "/v1/topics/orders").json(json!({"description": markup})).send().with(200);
    let subscribe = |name: &str, url: String, more: serde_json::Value| {
        let mut body = json!({
            "name": name, "url": url, "description": markup,
            "filter": {"any_of": [{"topics": ["orders"]}]},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        server.call("POST", "/v1/subscriptions").json(&body).send().with(201);
    };
    subscribe("works", good.url("/works"), json!({}));
    let once = json!({"policy": {"schedule": {"max_attempts": 1}}});
    subscribe("acme-erp", bad.url("/fails"), once);
    let elsewhere =
        json!({"filter": {"any_of": [{"topics": ["orders"], "attributes": {"region": "us"}}]}});
    subscribe("nobody", good.url("/nobody"), elsewhere);
    let gate = json!({
        "url": good.url("/gate"), "timeout": "5s", "status": ["2xx"], "on_closed": "dead_letter",
    });
    let gated = json!({"filter": {"any_of": [{"topics": ["none"]}]}, "policy": {"gate": gate}});
    subscribe("gated", good.url("/hub"), gated);
    speak_other_systems(server, &good);
    let described = json!({
        "description": markup, "schemas": {"1": {"type": "object"}}, "examples": [{"number": 7, "note": markup}],
    });
    server.call("PUT", "/v1/event-types/order.paid").json(described).send().with(200);
    let pair = Pair::self_signed("hub.example");
    let certificate = json!({
        "kind": "client", "description": "of the hub", "certificate": pair.certificate, "key": pair.key,
    });
    server.call("POST", "/v1/certificates").json(certificate).send().with(201);
    server.call("POST", "/v1/tenants").json(json!({"name": "acme"})).send().with(201);
    for number in 0..5 {
        let event = json!({
            "topic": "orders", "type": "order.paid", "key": markup, "attributes": {"region": markup},
            "payload": {"number": number, "note": markup},
        });
        server.call("POST", "/v1/events").json(&event).send().with(202);
    }
    server.settles(&[("delivered", 5), ("dead", 5)]);
    (good, bad)
}

/// Something on the page of each other system.
fn speak_other_systems(server: &Server, receiver: &Receiver) {
    let ask = |tenant: &str, method: &str, path: &str, body: serde_json::Value, status| {
        let call = server.call(method, path).header("posthorn-tenant", tenant);
        call.json(&body).send().with(status);
    };
    let kanaal = json!({"attributes": ["bron"], "labels": {"kanaal": "zaken"}});
    ask("notificaties", "PUT", "/v1/topics/zaken", kanaal, 200);
    let of = |labels: serde_json::Value| {
        let filter = json!({"any_of": [{"topics": ["zaken"]}]});
        json!({"url": receiver.url("/cb"), "labels": labels, "filter": filter})
    };
    let abonnement = of(json!({"client_id": "open-zaak"}));
    ask("notificaties", "POST", "/v1/subscriptions", abonnement, 201);
    let callback = of(json!({"country": "DE", "callbackId": "de-1"}));
    ask("efgs", "POST", "/v1/subscriptions", callback, 201);
}

/// Everything that has a page.
const SYSTEMS: &str = "push: {enabled: true, internal: {listen: '127.0.0.1:0'}}
dialects:
  notificaties: {enabled: true}
  efgs: {enabled: true, proxies: [127.0.0.1]}
  cedros: {enabled: true}
";

fn walk(on: On) {
    let mut home = Home::new();
    let database = on.store(&home);
    home.configure(SYSTEMS);
    let server = home.serve();
    let _receivers = furnish(&server);
    let pictures = home.path().join("pictures");
    let run = |more: &[(&str, &str)]| {
        let mut node = Command::new("node");
        if let On::Postgres = on {
            node.env("SHORT", "1");
        }
        let output = node
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/console.mjs"))
            .args([&server.url, &server.key, "default"])
            .arg(&pictures)
            .env("BROWSER_PACKAGES", packages())
            .envs(more.iter().copied())
            .output()
            .expect("node, which ./test installs");
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}");
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&[]);
    assert!(pictures.join("overview-light.png").exists());
    // A store that goes away is told by a page, too.
    if let Some(database) = database {
        database.stop_immediate().expect("stops");
        run(&[("AWAY", "1")]);
    }
}

/// What operators do, from a server that has nothing. With `UPDATE_IMAGES=1` the pictures of the documentation are made anew.
fn flows(on: On) {
    let mut home = Home::new();
    let _database = on.store(&home);
    let server = home.serve();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut node = Command::new("node");
    if let (On::Sqlite, Some(_)) = (on, std::env::var_os("UPDATE_IMAGES")) {
        node.env("IMAGES", root.join("../../docs/images"));
    }
    let output = node
        .arg(root.join("tests/browser/flows.mjs"))
        .args([&server.url, &server.key])
        .env("BROWSER_PACKAGES", packages())
        .output()
        .expect("node, which ./test installs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_operators_do_in_a_browser_on_sqlite() {
    flows(On::Sqlite);
}

#[test]
fn what_operators_do_in_a_browser_on_postgres() {
    flows(On::Postgres);
}

#[test]
fn every_page_in_a_browser_on_sqlite() {
    walk(On::Sqlite);
}

#[test]
fn every_page_in_a_browser_on_postgres() {
    walk(On::Postgres);
}

#[test]
fn the_console_is_where_the_configuration_says() {
    let mut home = Home::new();
    home.edit(
        "server: {listen: '127.0.0.1:0'}",
        "server: {listen: '127.0.0.1:0', admin_listen: '127.0.0.1:0', admin_surfaces: [health, console]}",
    );
    home.run("check").exits(0).says(&["(server.admin_listen) serves health, console"]);
    let mut server = home.serve();
    let admin = admin_url(&mut server);
    // Everything that was on the public listener, and nothing of it there.
    for path in ["/console", "/console/", "/console/login", "/console/system", "/console/live"] {
        server.get(path).with(404);
        assert_ne!(call(&admin, "GET", path).send().status, 404, "{path}");
    }
    server.get("/portal/left").with(200);
    assert_eq!(call(&admin, "GET", "/portal/left").send().status, 404);
    let page = call(&admin, "GET", "/console/login").send().with(200).body;
    let file = page.split("href=\"").find(|rest| rest.starts_with("/console/assets/"));
    let file = file.and_then(|rest| rest.split('"').next()).expect("a file");
    call(&admin, "GET", file).send().with(200);
    server.get(file).with(404);
    // Somebody can work there: the API that pages ask is within, though it is not served here.
    let mut browser = Browser::at(&admin);
    let key = server.key.clone();
    let entered = browser.post("/console/login", "/console/login", &[("key", &key)]);
    assert_eq!(leads(&entered), "/console/");
    browser.get("/console/").with(200);
    assert_eq!(call(&admin, "GET", "/v1/tenants").key(&key).send().status, 404);
    let token = browser.token();
    let form = [("csrf", token.as_str()), ("name", "acme")];
    browser.post("/console/tenants/new", "/console/tenants/new", &form).with(303);
    assert!(server.run("tenants list").out.contains("acme"));
    // A session of it opens nothing on the other one.
    let mut elsewhere = Browser::at(&server.url);
    elsewhere.cookies.clone_from(&browser.cookies);
    elsewhere.get("/console/system").with(404);
    server.stop();

    home.configure("console: {enabled: false}\n");
    let mut server = home.serve();
    let admin = admin_url(&mut server);
    for url in [&admin, &server.url] {
        for path in ["/console", "/console/", "/console/login", file] {
            assert_eq!(call(url, "GET", path).send().status, 404, "{url}{path}");
        }
        let login = call(url, "POST", "/console/login").raw(format!("key={key}"));
        assert_eq!(login.send().status, 404);
    }
    server.get("/portal/left").with(200);
}
