//! The portal in a real browser: Chromium, driven by playwright-core, with the checks of axe-core. What it walks through
//! is in `tests/browser/portal.mjs`. On both stores.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use serde_json::json;

use crate::cedros_world::On;
use crate::console::packages;

/// Messages that are there when the walk begins.
const MESSAGES: usize = 4;

/// A customer with something to look at: one endpoint that works, one that failed until now and works from now on, a
/// catalogue, and what strangers may write.
fn furnish(server: &Server) -> (Receiver, Receiver) {
    let good = Receiver::new(200);
    let seen = AtomicUsize::new(0);
    let bad = Receiver::scripted(move |_| {
        let nth = seen.fetch_add(1, Ordering::Relaxed);
        let trouble = Answer::from(503).body("maintenance <script>alert(1)</script>");
        if nth < MESSAGES { trouble } else { Answer::from(200) }
    });
    let markup = "<img src=x onerror=alert(1)>";
    server.call("POST", "/v1/tenants").json(json!({"name": "acme"})).send().with(201);
    let describe = |name: &str, text: &str, example: serde_json::Value| {
        let schema = json!({"type": "object", "properties": {"id": {"type": "integer", "description": markup}}});
        let body = json!({"description": text, "schemas": {"1": schema}, "examples": [example]});
        server.call("PUT", &format!("/v1/event-types/{name}")).json(body).send().with(200);
    };
    describe(
        "order.created",
        "An order was placed.",
        json!({"id": 7, "total": 12.5, "note": markup}),
    );
    describe("order.paid", "Its payment was confirmed.", json!({"id": 7, "total": 12.5}));
    describe("order.cancelled", "Cancelled by shop or customer.", json!({"id": 7}));
    let acme =
        |method: &str, path: &str| server.call(method, path).header("Posthorn-Tenant", "acme");
    acme("PUT", "/v1/topics/orders").json(json!({})).send().with(200);
    let subscribe = |name: &str, url: String, profile: &str, types: serde_json::Value| {
        let body = json!({
            "name": name, "url": url, "description": markup, "profile": profile,
            "filter": {"any_of": [{"types": types}]},
        });
        acme("POST", "/v1/subscriptions").json(body).send().with(201);
    };
    subscribe(
        "Production",
        good.url("/production"),
        "default",
        json!(["order.created", "order.paid"]),
    );
    subscribe("Warehouse", bad.url("/warehouse"), "once", json!(["order.*"]));
    for number in 0..MESSAGES {
        let event = json!({
            "topic": "orders", "type": "order.paid", "key": markup, "attributes": {"region": markup},
            "payload": {"number": number, "note": markup},
        });
        acme("POST", "/v1/events").json(event).send().with(202);
    }
    posthorn_testkit::wait::until("all messages to end", || {
        let counts = acme("GET", "/v1/stats").send().expect(200);
        counts["delivered"] == MESSAGES && counts["dead"] == MESSAGES
    });
    (good, bad)
}

fn walk(on: On) {
    // Where the page around a frame will be served from. Somebody else may take the port meanwhile, but seldom does.
    let site =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let mut home = Home::new();
    let _database = on.store(&home);
    let logo = home.write("logo.svg", "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><circle cx='4' cy='4' r='4' fill='#1f5fa8'/></svg>");
    home.configure(&format!(
        "portal:\n  name: Acme Shop\n  accent: '#9a5b00'\n  logo: {}\n  terms_url: https://example.com/terms\n  \
         frame_ancestors: ['http://localhost:{site}']\n  requests_per_second: 200\n  browsers: true\n",
        logo.display()
    ));
    let server = home.serve();
    let (good, bad) = furnish(&server);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/portal.mjs");
    let pictures = home.path().join("pictures");
    let mut node = Command::new("node");
    if let On::Postgres = on {
        node.env("SHORT", "1");
    } else if std::env::var_os("UPDATE_IMAGES").is_some() {
        node.env("IMAGES", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images"));
    }
    let output = node
        .arg(script)
        .args([&server.url, &server.key, &good.url("/new"), &site.to_string()])
        .arg(&pictures)
        .env("BROWSER_PACKAGES", packages())
        .output()
        .expect("node, which ./test installs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(pictures.join("endpoints-light.png").exists());
    // The test of the third step came, and so did the example of the catalogue: signed, and to the new endpoint.
    let new: Vec<_> = good.seen().into_iter().filter(|request| request.path == "/new").collect();
    assert_eq!(new.len(), 2, "{new:?}");
    assert!(new.iter().all(|request| request.header("webhook-signature").is_some()));
    assert!(new[1].text().contains("12.5"), "{:?}", new[1]);
    // What failed was sent again once: one by hand, the others by the job.
    bad.wait_for(2 * MESSAGES);
    let counts =
        server.call("GET", "/v1/stats").header("Posthorn-Tenant", "acme").send().expect(200);
    assert_eq!(
        (&counts["dead"], &counts["delivered"]),
        (&json!(0), &json!(2 * MESSAGES)),
        "{counts}"
    );
    // Every change says which session made it.
    let lines = server.call("GET", "/v1/audit?tenant=acme&limit=200").send().expect(200);
    let of_portal = |action: &str| {
        let lines = lines["items"].as_array().expect("a list").iter();
        lines.filter(|line| line["action"] == action && line["surface"] == "portal").count()
    };
    for action in [
        "portal_link.redeemed",
        "subscription.created",
        "subscription.updated",
        "delivery.retried",
        "job.created",
        "session.ended",
    ] {
        assert!(of_portal(action) > 0, "{action}: {lines}");
    }
}

#[test]
fn the_portal_in_a_browser_on_sqlite() {
    walk(On::Sqlite);
}

#[test]
fn the_portal_in_a_browser_on_postgres() {
    walk(On::Postgres);
}

#[test]
fn what_cannot_be_a_brand_is_refused_before_anything_starts() {
    let home = Home::new();
    let page = home.write("logo.png", "<html><script>alert(1)</script>");
    home.configure(&format!(
        "portal:\n  accent: red\n  logo: {}\n  favicon: /nowhere.png\n  language: xx\n  \
         terms_url: 'javascript:alert(1)'\n  frame_ancestors: ['*']\n  requests_per_second: 0\n",
        page.display()
    ));
    let keys = ["accent", "logo", "favicon", "language", "terms_url", "frame_ancestors"];
    let keys: Vec<String> = keys.into_iter().map(|key| format!("portal.{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    home.run("check").fails().says(&keys).says(&["portal.requests_per_second", "is no PNG"]);
}

#[test]
fn the_portal_is_where_the_configuration_says() {
    let mut home = Home::new();
    home.configure("portal: {enabled: false}\n");
    let server = home.serve();
    server.get("/portal").with(404);
    server.get("/console/login").with(200);
    server.stop();
    home.edit("portal: {enabled: false}", "portal: {name: Ours}");
    home.edit(
        "server: {listen: '127.0.0.1:0'}",
        "server: {listen: '127.0.0.1:0', surfaces: [health, v1, portal]}",
    );
    let server = home.serve();
    assert!(server.get("/portal").with(200).body.contains("Ours"));
    // The files that pages load come from here as well.
    let page = server.get("/portal/left").with(200).body;
    let file = page.split("<script src=\"").nth(1).and_then(|rest| rest.split('"').next());
    server.get(file.expect("a script")).with(200);
    server
        .get("/portal/worker.js")
        .with(200)
        .has(&[("content-type", "text/javascript; charset=utf-8")]);
    server.get("/console/login").with(404);
}
