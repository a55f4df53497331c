//! Events of a payment server: what is filled in, who may look at them from a browser, and one by hand.

use crate::cedros::{QUICK, text};
use crate::cedros_world::{On, TENANT, World, listed};

fn missing_fields_are_filled_in(on: On) {
    let mut world = World::new(on);
    world.callbacks(QUICK);
    let server = world.home.serve();
    let send = |event_type: &str, payload: &str, more: &[&str]| {
        let args = ["send", "payments", event_type, payload, "--tenant", TENANT];
        server.ask(&[&args[..], more].concat())
    };
    // Twice under one key is one event, with one id.
    let key = ["--idempotency-key", "order-7"];
    let said = r#"{"resource": "article-42", "fiatAmountCents": 12345678901234567890}"#;
    let first = send("payment.succeeded", said, &key);
    assert_eq!(send("payment.succeeded", said, &key)["id"], first["id"]);
    let seen = world.receiver.wait_for(1);
    let body = seen[0].json();
    let id = text(&body, "eventId");
    let digits = id.strip_prefix("evt_").expect("the prefix");
    assert!(digits.len() == 24 && digits.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{id}");
    assert_eq!(text(&body, "eventType"), "payment.succeeded");
    for name in ["eventTimestamp", "paidAt"] {
        let time = text(&body, name);
        assert!(time.len() >= 20 && time.ends_with('Z') && time.contains('T'), "{name}: {time}");
    }
    assert!(seen[0].text().contains("12345678901234567890"), "digits are kept: {}", seen[0].text());
    assert_eq!(listed(&server, "")[0]["eventId"], id);

    send(
        "refund.succeeded",
        r#"{"eventId":"","refundId":"r-1","refundedAt":"2024-01-02T03:04:05Z"}"#,
        &[],
    );
    let refund = world.receiver.wait_for(2)[1].json();
    assert!(text(&refund, "eventId").starts_with("evt_") && refund["eventId"] != body["eventId"]);
    assert_eq!(text(&refund, "eventType"), "refund.succeeded");
    assert_eq!(text(&refund, "refundedAt"), "2024-01-02T03:04:05Z", "what is there is not touched");
    assert!(refund.get("paidAt").is_none());

    // In a batch, and what is complete or no event at all goes as it is.
    let full = r#"{ "eventId":"evt_x", "eventType":"t", "eventTimestamp":"e", "paidAt":"p" }"#;
    send("payment.succeeded", full, &["--count", "2"]);
    send("payment.succeeded", "[1, 2]", &[]);
    let seen = world.receiver.wait_for(5);
    let mut bodies: Vec<&str> = seen[2..].iter().map(|request| request.text()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["[1, 2]", full, full]);
    // Another topic of the tenant is nobody's business.
    let other =
        server.ask(&format!("send notes payment.succeeded {{}} --create-topic --tenant {TENANT}"));
    let shown = server.ask(&["events", "show", text(&other, "id"), "--tenant", TENANT]);
    assert_eq!(shown["payload"], serde_json::json!({}), "{shown}");
    server.stop();
}

#[test]
fn missing_fields_are_filled_in_on_sqlite() {
    missing_fields_are_filled_in(On::Sqlite);
}

#[test]
fn missing_fields_are_filled_in_on_postgresql() {
    missing_fields_are_filled_in(On::Postgres);
}

#[test]
fn pages_of_named_origins_may_call_and_no_others() {
    let mut world = World::new(On::Sqlite);
    world.callbacks(&format!(
        "{QUICK}dialects: {{cedros: {{origins: ['https://admin.example.com']}}}}\n"
    ));
    let server = world.home.serve();
    let key = format!("Bearer {}", server.key);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        server.open(method, path).headers(headers).send()
    };
    let origin = ("Origin", "https://admin.example.com");
    let beforehand = [
        origin,
        ("Access-Control-Request-Method", "DELETE"),
        ("Access-Control-Request-Headers", "authorization, x-api-key"),
    ];
    for path in [
        "/admin/webhooks",
        "/admin/webhooks/dlv_x",
        "/admin/webhooks/dlv_x/retry",
        "/admin/webhooks/dlq",
    ] {
        let reply = ask("OPTIONS", path, &beforehand).with(204);
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin.1));
        let methods = reply.header("access-control-allow-methods").expect("methods");
        let names = reply.header("access-control-allow-headers").expect("names");
        for part in ["GET", "POST", "DELETE"] {
            assert!(methods.contains(part), "{methods}");
        }
        for part in ["authorization", "x-api-key", "posthorn-tenant"] {
            assert!(names.contains(part), "{names}");
        }
        assert!(reply.header("access-control-allow-credentials").is_none());
    }
    // The answer itself names the origin, whether it is good or not; so that a page can read why.
    for (headers, status) in [(&[origin, ("Authorization", &key)][..], 200), (&[origin], 401)] {
        let reply = ask("GET", "/admin/webhooks", headers).with(status);
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin.1));
        assert_eq!(reply.header("vary"), Some("Origin"));
    }
    for other in [
        "https://evil.example.com",
        "http://admin.example.com",
        "https://admin.example.com:8443",
        "null",
        "https://admin.example.com.evil.com",
        "HTTPS://ADMIN.EXAMPLE.COM",
    ] {
        let reply =
            ask("OPTIONS", "/admin/webhooks", &[("Origin", other), beforehand[1]]).with(405);
        assert_eq!(reply.header("access-control-allow-origin"), None, "{other}");
        let reply =
            ask("GET", "/admin/webhooks", &[("Origin", other), ("Authorization", &key)]).with(200);
        assert_eq!(reply.header("access-control-allow-origin"), None, "{other}");
    }
    // The native API is not opened by it.
    let reply = ask("GET", "/v1/stats", &[origin, ("Authorization", &key)]);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    server.stop();
    for bad in [
        "*",
        "null",
        "admin.example.com",
        "https://admin.example.com/",
        "https://Admin.example.com",
    ] {
        world.callbacks(&format!("dialects: {{cedros: {{origins: ['{bad}']}}}}\n"));
        world.home.run("check").exits(78).says(&["dialects.cedros.origins", "is not an origin"]);
    }
}

#[test]
fn one_webhook_is_sent_by_hand_without_a_server() {
    let world = World::new(On::Sqlite);
    let send = |args: &[&str]| world.home.run(&[&["callbacks", "send"], args].concat());
    let output = send(&[r#"{"resource":"article-42"}"#, "--json"]).exits(0);
    let told = output.json();
    assert_eq!((&told["delivered"], text(&told, "url")), (&true.into(), world.hook().as_str()));
    let seen = world.receiver.wait_for(1);
    let body = seen[0].json();
    assert_eq!((&body["eventId"], &body["resource"]), (&told["eventId"], &"article-42".into()));
    let header = |name: &str| seen[0].header(name).unwrap_or_default();
    assert_eq!(header("x-cedros-event-type"), "payment.succeeded");
    assert_eq!(header("authorization"), "Bearer hush-hush");
    assert!(header("x-cedros-signature").starts_with("sha256="));
    // The type is the flag's, or the payload's own.
    send(&["{}", "--type", "refund.succeeded"]).exits(0);
    send(&[r#"{"eventId":"evt_own","eventType":"refund.processed"}"#]).exits(0);
    let seen = world.receiver.wait_for(3);
    let types: Vec<&str> =
        seen.iter().map(|request| request.headers["x-cedros-event-type"].as_str()).collect();
    assert_eq!(types[1..], ["refund.succeeded", "refund.processed"]);
    assert!(seen[1].text().contains("refundedAt") && seen[2].text().contains("evt_own"));
    // Once means once.
    world.answers(503);
    send(&["{}"]).exits(1).says(&["HTTP 503"]);
    assert_eq!(world.receiver.count(), 4, "not tried again");
    for wrong in ["[1]", "7", "{", r#"{"eventId": 7}"#] {
        send(&[wrong]).exits(2);
    }
    assert!(!world.home.data().exists(), "nothing is stored");
    world.configure("");
    send(&["{}"]).exits(78).says(&["callbacks.payment_success_url"]);
}

#[test]
fn a_backend_that_is_not_used_is_warned_of() {
    let mut world = World::new(On::Sqlite);
    for (backend, warned) in
        [("memory", true), ("postgres", true), ("sqlite", false), ("null", false)]
    {
        world.callbacks(&format!("  backend: {backend}\n"));
        let server = world.home.serve();
        let line = format!("callbacks.backend is {backend}, which has no effect here");
        if warned {
            server.running.says(&line);
        }
        let log = server.running.stderr();
        assert_eq!(log.contains(&line), warned, "{backend}: {log}");
        assert_eq!(log.contains("kept in sqlite"), warned, "{log}");
        server.stop();
    }
    let mut world = World::new(On::Postgres);
    for (backend, warned) in [("memory", true), ("postgres", false)] {
        world.callbacks(&format!("  backend: {backend}\n"));
        let server = world.home.serve();
        assert_eq!(server.running.stderr().contains("kept in postgres"), warned, "{backend}");
        server.stop();
    }
}
