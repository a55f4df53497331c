//! What people are told when a policy or an event is wrong: the place, and words that need no knowledge of Rust.

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// Whoever reads these has never heard of serde.
#[track_caller]
fn speaks_plainly(detail: &str) {
    for foreign in [
        "struct",
        "enum ",
        "variant",
        "expected",
        "invalid type",
        "missing field",
        "unknown field",
        "duplicate field",
        "serde",
        "u32",
        "line 1",
    ] {
        assert!(!detail.contains(foreign), "{foreign}: {detail}");
    }
}

#[tokio::test]
async fn errors_of_policies_name_the_place_and_speak_plain_words() {
    let server = Server::start().await;
    let schedule = |value: Value| json!({"schedule": value});
    let auth = |value: Value| json!({"auth": [{"kind": "bearer", "secret": "a"}, value]});
    for (policy, place, words) in [
        (
            json!({"order": "key"}),
            "order",
            "must be an object with scope, key, dead_head, not a text",
        ),
        (
            json!({"order": {"scope": "keys"}}),
            "order.scope",
            "`keys` is not one of none, subscription, key",
        ),
        (
            json!({"limits": {"concurency": 3}}),
            "limits.concurency",
            "there is no such field here; known fields: connect, tls",
        ),
        (
            json!({"limits": {"concurrency": "3"}}),
            "limits.concurrency",
            "must be a whole number from 0 to 4294967295, not a text",
        ),
        (json!({"limits": {"rate": true}}), "limits.rate", "must be a number, not true or false"),
        (
            schedule(json!({"backoff": {"fixed": {"wait": "5"}}})),
            "schedule.backoff.fixed.wait",
            "`5` is not a duration: write whole numbers with units",
        ),
        (
            schedule(json!({"backoff": {"fixed": {"wait": 5}}})),
            "schedule.backoff.fixed.wait",
            "must be a duration as a text, like \"30s\" or \"1h30m\", not a number",
        ),
        (schedule(json!({"backoff": {"fixed": {}}})), "schedule.backoff.fixed.wait", "is missing"),
        (
            schedule(json!({"backoff": "fixed"})),
            "schedule.backoff.fixed",
            "must be an object with wait",
        ),
        (
            schedule(json!({"backoff": {"linear": {}}})),
            "schedule.backoff",
            "`linear` is not one of fixed, exponential, list",
        ),
        (schedule(json!({"backoff": null})), "schedule.backoff", "is missing"),
        (
            schedule(json!({"jitter": {"ratio": {"ratio": 2}}})),
            "schedule.jitter.ratio.ratio",
            "must be 0 to 1",
        ),
        (json!({"success": "2xx"}), "success", "must be a list, not a text"),
        (json!({"success": [true]}), "success[0]", "must be a status: 200, 2xx or 200-204"),
        (
            json!({"request": {"method": "post"}}),
            "request.method",
            "`post` is not one of POST, PUT, PATCH, GET",
        ),
        (
            json!({"request": {"headers": {"X-A": 1}}}),
            "request.headers.X-A",
            "must be a text, not a number",
        ),
        (
            json!({"gate": {"url": "https://a.example/", "timeout": "1s", "status": [200]}}),
            "gate.on_closed",
            "is missing",
        ),
        (auth(json!("bearer")), "auth[1]", "must be an object with `kind`, not a text"),
        (auth(json!({"secret": "x"})), "auth[1].kind", "is missing"),
        (
            auth(json!({"kind": "token"})),
            "auth[1].kind",
            "`token` is not one of standard_webhooks, hmac_header",
        ),
        (
            auth(json!({"kind": "oauth2", "client_id": 7})),
            "auth[1].client_id",
            "must be a text, not a number",
        ),
        (auth(json!({"kind": "basic", "secret": "x"})), "auth[1].user", "is missing"),
        (
            auth(json!({"kind": "secret_header", "header": "Host", "secret": "x"})),
            "auth[1].header",
            "",
        ),
        (
            json!({"values": {"a": 1}}),
            "values.a",
            "must be a text, or an object with `from` and `after`, not a number",
        ),
        (
            json!({"values": {"a": {"fron": "x"}}}),
            "values.a.fron",
            "there is no such field here; known fields: from, after",
        ),
        (
            json!({"order": {"scope": "key", "key": "{event"}}),
            "order.key",
            "unclosed or stray brace",
        ),
    ] {
        let body = json!({"url": "https://ok.example/", "policy": policy});
        let reply = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
        let problem = reply.expect_problem(422, "invalid_policy");
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(problem["field"], format!("policy.{place}"), "{problem}");
        assert!(
            detail.contains(&format!("{place}: ")) && detail.contains(words),
            "{words}: {detail}"
        );
        speaks_plainly(detail);
        let body = json!({"base": "default", "policy": policy});
        let reply = server.as_acme("PUT", "/v1/profiles/own").json(&body).await;
        assert_eq!(reply.expect_problem(422, "invalid_policy")["field"], format!("policy.{place}"));
    }
}

#[tokio::test]
async fn errors_of_events_name_the_place_and_speak_plain_words() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let with = |name: &str, value: Value| {
        let mut event = json!({"topic": "orders", "type": "a", "payload": {"x": [1, {"y": 2}]}});
        event[name] = value;
        event
    };
    let known = "there is no such field here; known fields: topic, type, payload, attributes";
    for (event, place, words) in [
        (with("topic", json!(3)), "topic", "must be a text, not a number"),
        (with("type", json!(null)), "type", "must be a text, not null"),
        (with("key", json!(["k"])), "key", "must be a text, not a list"),
        (with("content_type", json!(true)), "content_type", "must be a text, not true or false"),
        (with("attributes", json!("a=b")), "attributes", "must be an object of texts, not a text"),
        (
            with("attributes", json!({"a": "x", "b": 7})),
            "attributes.b",
            "must be a text, not a number",
        ),
        (
            with("attributes", json!({"a": {"b": "c"}})),
            "attributes.a",
            "must be a text, not an object",
        ),
        (with("paylod", json!(1)), "paylod", known),
        (json!({"topic": "orders", "type": "a"}), "payload", "is missing"),
        (json!({"type": "a", "payload": 1}), "topic", "is missing"),
        (json!(["orders", "a", {}]), "", "must be an object, not a list"),
    ] {
        let check = |problem: &Value| {
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(problem["field"].as_str().unwrap_or_default(), place, "{problem}");
            assert!(detail.contains(words), "{words}: {detail}");
            speaks_plainly(detail);
        };
        let reply = server.as_acme("POST", "/v1/events").json(&event).await;
        check(&reply.expect_problem(422, "invalid_request"));
        let body = json!({"events": [with("key", json!("k")), event]});
        let reply = server.as_acme("POST", "/v1/events/batch").json(&body).await.expect(200);
        assert_eq!(reply["items"][0]["status"], 202, "the other is published: {reply}");
        check(&reply["items"][1]["error"]);
    }
    let many = vec![json!(1); 1_001];
    for (batch, place, words) in [
        (
            json!({"events": {"topic": "a"}}),
            "events",
            "must be a list of at most 1000 items, not an object",
        ),
        (json!({"event": []}), "event", "there is no such field here; known fields: events"),
        (json!({}), "events", "is missing"),
        (json!({"events": many}), "events", "must be a list of at most 1000 items, not 1001"),
        (json!([]), "", "must be an object, not a list"),
    ] {
        let reply = server.as_acme("POST", "/v1/events/batch").json(&batch).await;
        let problem = reply.expect_problem(422, "invalid_request");
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(problem["field"].as_str().unwrap_or_default(), place, "{problem}");
        assert!(detail.contains(words), "{words}: {detail}");
        speaks_plainly(detail);
    }
    // A payload may say the same twice; whoever reads it decides. The rest may not.
    for (text, status, code) in [
        (
            r#"{"topic":"orders","type":"a","payload":{"x":1,"x":2},"key":7}"#,
            422,
            "invalid_request",
        ),
        (r#"{"topic":"orders","type":"a","payload":1,"type":"b"}"#, 400, "invalid_json"),
        (
            r#"{"topic":"orders","type":"a","payload":1,"attributes":{"a":"b","a":"c"}}"#,
            400,
            "invalid_json",
        ),
    ] {
        let reply = server.as_acme("POST", "/v1/events").text(text).await;
        let problem = reply.expect_problem(status, code);
        let words = if status == 422 { "must be a text" } else { "is repeated" };
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
        speaks_plainly(detail);
    }
}
