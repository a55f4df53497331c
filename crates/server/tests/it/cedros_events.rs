//! Events of a payment server: what is filled in, who may look at them from a browser, and one by hand.

use serde_json::Value;

use crate::caller::call;
use crate::cedros::{QUICK, text};
use crate::cedros_world::{On, TENANT, World, listed};
use crate::harness::{assert_exit, assert_says, out, run};

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
    let body: Value = serde_json::from_str(&seen[0].body).expect("JSON");
    let id = text(&body, "eventId");
    let digits = id.strip_prefix("evt_").expect("the prefix");
    assert!(digits.len() == 24 && digits.bytes().all(|b| b"0123456789abcdef".contains(&b)), "{id}");
    assert_eq!(text(&body, "eventType"), "payment.succeeded");
    for name in ["eventTimestamp", "paidAt"] {
        let time = text(&body, name);
        assert!(time.len() >= 20 && time.ends_with('Z') && time.contains('T'), "{name}: {time}");
    }
    assert!(seen[0].body.contains("12345678901234567890"), "digits are kept: {}", seen[0].body);
    assert_eq!(listed(&server, "")[0]["eventId"], id);

    send(
        "refund.succeeded",
        r#"{"eventId":"","refundId":"r-1","refundedAt":"2024-01-02T03:04:05Z"}"#,
        &[],
    );
    let refund: Value = serde_json::from_str(&world.receiver.wait_for(2)[1].body).expect("JSON");
    assert!(text(&refund, "eventId").starts_with("evt_") && refund["eventId"] != body["eventId"]);
    assert_eq!(text(&refund, "eventType"), "refund.succeeded");
    assert_eq!(text(&refund, "refundedAt"), "2024-01-02T03:04:05Z", "what is there is not touched");
    assert!(refund.get("paidAt").is_none());

    // In a batch, and what is complete or no event at all goes as it is.
    let full = r#"{ "eventId":"evt_x", "eventType":"t", "eventTimestamp":"e", "paidAt":"p" }"#;
    send("payment.succeeded", full, &["--count", "2"]);
    send("payment.succeeded", "[1, 2]", &[]);
    let seen = world.receiver.wait_for(5);
    let mut bodies: Vec<&str> = seen[2..].iter().map(|request| request.body.as_str()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["[1, 2]", full, full]);
    // Another topic of the tenant is nobody's business.
    let other = server.ask(&[
        "send",
        "notes",
        "payment.succeeded",
        "{}",
        "--create-topic",
        "--tenant",
        TENANT,
    ]);
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
        call(&server.url, None, method, path, headers).expect("an answer")
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
        let reply = ask("OPTIONS", path, &beforehand).expect(204);
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
        let reply = ask("GET", "/admin/webhooks", headers).expect(status);
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
            ask("OPTIONS", "/admin/webhooks", &[("Origin", other), beforehand[1]]).expect(405);
        assert_eq!(reply.header("access-control-allow-origin"), None, "{other}");
        let reply = ask("GET", "/admin/webhooks", &[("Origin", other), ("Authorization", &key)])
            .expect(200);
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
        let output = run(world.home.path(), &["check"]);
        assert_exit(&output, 78);
        assert_says(&output, &["dialects.cedros.origins", "is not an origin"]);
    }
}

#[test]
fn one_webhook_is_sent_by_hand_without_a_server() {
    let world = World::new(On::Sqlite);
    let send = |args: &[&str]| run(world.home.path(), &[&["callbacks", "send"], args].concat());
    let output = send(&[r#"{"resource":"article-42"}"#, "--json"]);
    assert_exit(&output, 0);
    let told: Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!(
        (&told["delivered"], text(&told, "url")),
        (&true.into(), world.receiver.url.as_str())
    );
    let seen = world.receiver.wait_for(1);
    let body: Value = serde_json::from_str(&seen[0].body).expect("JSON");
    assert_eq!((&body["eventId"], &body["resource"]), (&told["eventId"], &"article-42".into()));
    let header = |name: &str| seen[0].headers.get(name).map_or("", String::as_str);
    assert_eq!(header("x-cedros-event-type"), "payment.succeeded");
    assert_eq!(header("authorization"), "Bearer hush-hush");
    assert!(header("x-cedros-signature").starts_with("sha256="));
    // The type is the flag's, or the payload's own.
    assert_exit(&send(&["{}", "--type", "refund.succeeded"]), 0);
    assert_exit(&send(&[r#"{"eventId":"evt_own","eventType":"refund.processed"}"#]), 0);
    let seen = world.receiver.wait_for(3);
    let types: Vec<&str> =
        seen.iter().map(|request| request.headers["x-cedros-event-type"].as_str()).collect();
    assert_eq!(types[1..], ["refund.succeeded", "refund.processed"]);
    assert!(seen[1].body.contains("refundedAt") && seen[2].body.contains("evt_own"));
    // Once means once.
    world.receiver.answers(503);
    let output = send(&["{}"]);
    assert_exit(&output, 1);
    assert_says(&output, &["HTTP 503"]);
    assert_eq!(world.receiver.seen.lock().expect("fine").len(), 4, "not tried again");
    for wrong in ["[1]", "7", "{", r#"{"eventId": 7}"#] {
        assert_exit(&send(&[wrong]), 2);
    }
    assert!(!world.home.data().exists(), "nothing is stored");
    world.configure("");
    let output = send(&["{}"]);
    assert_exit(&output, 78);
    assert_says(&output, &["callbacks.payment_success_url"]);
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
