//! CloudEvents: published in every mode, delivered again as they were, and the handshake of senders.

use posthorn_api::Options;
use posthorn_listener::ServeLimits;
use posthorn_testkit::caller::{Call, Reply};
use serde_json::{Value, json};

use crate::harness::{Problem as _, Sent, Server};

const ONE: &str = "application/cloudevents+json";
const MANY: &str = "application/cloudevents-batch+json";

fn event() -> Value {
    json!({"specversion": "1.0", "id": "A-1", "source": "https://shop.example/eu", "type": "order.paid",
        "time": "2026-01-31T12:00:00.123456789+01:00", "subject": "order/7 ä", "topic": "orders",
        "partitionkey": "customer-7", "region": "eu", "attempt": 3, "last": true,
        "dataschema": "https://shop.example/schema", "datacontenttype": "application/json",
        "data": {"n": 1}})
}

fn structured(server: &Server, event: &Value) -> Call {
    structured_text(server, &event.to_string())
}

fn structured_text(server: &Server, body: &str) -> Call {
    server.as_acme("POST", "/v1/events").header("content-type", ONE).raw(body)
}

fn binary(server: &Server, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Call {
    server.as_acme("POST", "/v1/events").headers(headers).raw(body)
}

fn batch(server: &Server, path: &str, body: &Value) -> Call {
    server.as_acme("POST", path).header("content-type", MANY).raw(body.to_string())
}

async fn subscribe(server: &Server, host: &str, envelope: &str) {
    let policy = json!({"policy": {"request": {"envelope": envelope}}});
    server.subscribe(&format!("https://{host}/"), policy).await;
}

async fn sent(server: &Server, reply: &Reply, host: &str) -> Sent {
    let id = reply.expect(202)["id"].as_str().unwrap().to_owned();
    server.delivery_in(&id, "delivered").await;
    server.transport.sent_to(host).pop().unwrap()
}

#[tokio::test]
async fn a_structured_event_is_delivered_structured_as_it_was() {
    let server = Server::start().await;
    subscribe(&server, "ok.example", "cloudevents_structured").await;
    let reply = structured(&server, &event()).await;
    let sent = sent(&server, &reply, "ok.example").await;
    assert_eq!(sent.headers["content-type"], "application/cloudevents+json; charset=utf-8");
    assert_eq!(serde_json::from_slice::<Value>(&sent.body).unwrap(), event());
    let id = reply.expect(202)["id"].as_str().unwrap().to_owned();
    let shown = server.as_acme("GET", &format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(shown["type"], "order.paid");
    assert_eq!(shown["topic"], "orders");
    assert_eq!(shown["key"], "customer-7");
    assert_eq!(shown["payload"], json!({"n": 1}));
    assert_eq!(shown["attributes"]["region"], "eu");
    assert_eq!(shown["attributes"]["subject"], "order/7 ä");
    assert_eq!(shown["attributes"]["ce-id"], "A-1");
    assert_eq!(shown["attributes"]["ce-source"], "https://shop.example/eu");
}

#[tokio::test]
async fn a_binary_event_is_delivered_binary_as_it_was() {
    let server = Server::start().await;
    subscribe(&server, "ok.example", "cloudevents_binary").await;
    let headers = [
        ("content-type", "text/csv"),
        ("ce-specversion", "1.0"),
        ("ce-id", "A%201"),
        ("ce-source", "/shop"),
        ("ce-type", "order.paid"),
        ("ce-time", "2026-01-31T12:00:00Z"),
        ("ce-subject", "50%20%25%20%C3%A4"),
        ("ce-region", "eu"),
        ("ce-topic", "orders"),
    ];
    let reply = binary(&server, &headers, b"a;\xff").await;
    let sent = sent(&server, &reply, "ok.example").await;
    assert_eq!(&sent.body[..], b"a;\xff");
    for (name, value) in headers {
        assert_eq!(sent.headers[name], value, "{name}");
    }
    let names = sent.headers.keys().filter(|name| name.as_str().starts_with("ce-"));
    assert_eq!(names.count(), headers.len() - 1, "nothing is added");
}

#[tokio::test]
async fn the_same_source_and_id_is_the_same_event() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let first = structured(&server, &event()).await.expect(202);
    let again = structured(&server, &event()).await.expect(202);
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    let change = |name: &str, value: Value| {
        let mut event = event();
        event[name] = value;
        event
    };
    for other in [change("data", json!(2)), change("region", json!("us"))] {
        structured(&server, &other).await.expect_problem(409, "idempotency_key_reused");
    }
    for other in [change("id", json!("A-2")), change("source", json!("/other"))] {
        assert_eq!(structured(&server, &other).await.expect(202)["duplicate"], false);
    }
    let keyed = structured(&server, &event()).header("idempotency-key", "k").await;
    assert_eq!(keyed.expect_problem(422, "invalid_request")["field"], "Idempotency-Key");
}

#[tokio::test]
async fn the_topic_comes_from_the_query_or_an_extension() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let mut bare = event();
    bare.as_object_mut().unwrap().remove("topic");
    let refused = structured(&server, &bare).await.expect_problem(400, "invalid_cloudevent");
    assert_eq!(refused["field"], "topic");
    let asked = |path: &str, event: &Value| {
        server.as_acme("POST", path).header("content-type", ONE).raw(event.to_string())
    };
    asked("/v1/events?topic=orders", &bare).await.expect(202);
    let mut other = event();
    other["id"] = json!("A-2");
    other["topic"] = json!("nowhere");
    structured(&server, &other).await.expect_problem(422, "unknown_topic");
    asked("/v1/events?topic=orders", &other).await.expect(202);
    let bad = asked("/v1/events?topic=a%20b", &bare).await;
    assert_eq!(bad.expect_problem(422, "invalid_request")["field"], "topic");
    let native = json!({"topic": "orders", "type": "a", "payload": 1});
    for path in ["/v1/events?topic=orders", "/v1/events/batch?topic=orders"] {
        let native = server.as_acme("POST", path).json(&native).await;
        assert_eq!(native.expect_problem(422, "invalid_request")["field"], "topic", "{path}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_cloudevent_is_named() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    for (name, value) in [
        ("specversion", json!("0.3")),
        ("specversion", json!(null)),
        ("id", json!(null)),
        ("id", json!("")),
        ("source", json!(5)),
        ("source", json!("a b")),
        ("type", json!("a b")),
        ("type", json!("x".repeat(129))),
        ("time", json!("now")),
        ("datacontenttype", json!("json")),
        ("dataschema", json!("relative")),
        ("snake_case", json!("x")),
        ("Upper", json!("x")),
        ("list", json!([])),
        ("topic", json!("a b")),
        ("topic", json!(7)),
        ("partitionkey", json!(true)),
        ("data_base64", json!("AA==")),
    ] {
        let mut event = event();
        event[name] = value.clone();
        let problem = structured(&server, &event).await.expect_problem(400, "invalid_cloudevent");
        assert_eq!(problem["field"], name, "{name}: {value}");
        assert!(problem["detail"].as_str().unwrap().starts_with(name), "{problem}");
    }
    let mut many = event();
    for n in 0..70 {
        many[format!("a{n}")] = json!("x");
    }
    structured(&server, &many).await.expect_problem(400, "invalid_cloudevent");
    for body in ["", "[]", "{", "5", r#"{"id":"1","id":"2"}"#] {
        structured_text(&server, body).await.expect_problem(400, "invalid_json");
    }
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let deep = event().to_string().replace(r#"{"n":1}"#, &deep);
    structured_text(&server, &deep).await.expect_problem(400, "invalid_json");
    let count = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!(count["events"], 0, "nothing was published");
}

#[tokio::test]
async fn what_is_wrong_with_headers_is_named() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let good = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/s"),
        ("ce-type", "t"),
        ("ce-topic", "orders"),
    ];
    for (name, value, field) in [
        ("ce-specversion", "2.0", "specversion"),
        ("ce-id", "", "id"),
        ("ce-id", "%zz", "id"),
        ("ce-type", "a%20b", "type"),
        ("ce-time", "now", "time"),
        ("ce-not_a_name", "x", "not_a_name"),
        ("ce-data", "x", "data"),
        ("content-type", "nonsense", "datacontenttype"),
    ] {
        let mut headers = good.to_vec();
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value));
        let problem = binary(&server, &headers, "{}").await;
        let problem = problem.expect_problem(400, "invalid_cloudevent");
        assert_eq!(problem["field"], field, "{name}: {value}");
    }
    let untyped = binary(&server, &good[1..], "{}").await.expect_problem(400, "invalid_cloudevent");
    assert_eq!(untyped["field"], "datacontenttype");
    let no_json = binary(&server, &good, "{").await.expect_problem(400, "invalid_cloudevent");
    assert_eq!(no_json["field"], "data");
    // Without data there need be no type.
    binary(&server, &good[1..], "").await.expect(202);
    let packed = binary(&server, &good, "{}").header("content-encoding", "gzip").await;
    packed.expect_problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn a_batch_has_an_answer_for_each_of_its_events() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let with = |id: &str, more: Value| {
        let mut event = event();
        event["id"] = json!(id);
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        event
    };
    let events =
        json!([with("1", json!({})), with("2", json!({"type": ""})), 5, with("1", json!({}))]);
    let reply = batch(&server, "/v1/events/batch", &events).await.expect(200);
    let statuses: Vec<u64> =
        reply["items"].as_array().unwrap().iter().map(|i| i["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 400, 400, 202]);
    assert_eq!(reply["items"][1]["error"]["code"], "invalid_cloudevent");
    assert_eq!(reply["items"][1]["error"]["field"], "type");
    assert_eq!(reply["items"][2]["error"]["code"], "invalid_json");
    assert_eq!(reply["items"][3]["duplicate"], true);
    let topicless = json!([with("3", json!({"topic": null}))]);
    let reply = batch(&server, "/v1/events/batch?topic=orders", &topicless).await.expect(200);
    assert_eq!(reply["items"][0]["status"], 202);
    assert_eq!(
        batch(&server, "/v1/events/batch", &json!([])).await.expect(200)["items"],
        json!([])
    );

    let many = json!(vec![event(); 1_001]);
    batch(&server, "/v1/events/batch", &many).await.expect_problem(400, "invalid_cloudevent");
    batch(&server, "/v1/events/batch", &event()).await.expect_problem(400, "invalid_cloudevent");
    // Each form has its path.
    batch(&server, "/v1/events", &json!([])).await.expect_problem(415, "unsupported_media_type");
    let one = server.as_acme("POST", "/v1/events/batch").header("content-type", ONE);
    one.raw(event().to_string()).await.expect_problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn only_json_in_utf8_is_a_format() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    for kind in [
        "application/cloudevents+xml",
        "application/cloudevents+json; charset=latin1",
        "application/cloudevents",
        "application/cloudevents+avro",
    ] {
        let ask = server.as_acme("POST", "/v1/events").header("content-type", kind);
        ask.raw(event().to_string()).await.expect_problem(415, "unsupported_media_type");
    }
    let kind = "Application/CloudEvents+JSON; charset=\"UTF-8\"";
    let ask = server.as_acme("POST", "/v1/events").header("content-type", kind);
    ask.raw(event().to_string()).await.expect(202);
}

#[tokio::test]
async fn data_that_is_no_json_keeps_its_bytes_and_type() {
    let server = Server::start().await;
    subscribe(&server, "ok.example", "none").await;
    for (name, data, kind, expected) in [
        ("data", "a;b", "text/csv", &b"a;b"[..]),
        ("data_base64", "AP8=", "application/octet-stream", b"\0\xff"),
        ("data_base64", "W10=", "application/json", b"[]"),
    ] {
        let mut event = event();
        event.as_object_mut().unwrap().remove("data");
        event["id"] = json!(data);
        event[name] = json!(data);
        event["datacontenttype"] = json!(kind);
        let reply = structured(&server, &event).await;
        let sent = sent(&server, &reply, "ok.example").await;
        assert_eq!(sent.body, expected);
        assert_eq!(sent.headers["content-type"], kind);
    }
}

fn asks(server: &Server, path: &str) -> Call {
    server.ask("OPTIONS", path).header("webhook-request-origin", "sender.example")
}

#[tokio::test]
async fn senders_with_a_key_are_told_that_they_may_publish_and_how_often() {
    let server = Server::start().await;
    for path in ["/v1/events", "/v1/events/batch"] {
        let reply = asks(&server, path).key(&server.keys.acme).await.with(204);
        assert_eq!(reply.header("webhook-allowed-origin"), Some("sender.example"));
        assert!(reply.header("allow").unwrap().contains("POST"));
        let rate = reply.header("webhook-allowed-rate").unwrap();
        assert!(rate == "*" || rate.parse::<u64>().is_ok(), "{rate}");
    }
    let limited = json!({"tenant": "acme", "scopes": ["publish"], "rate_limit": 7});
    let limited = server.as_operator("POST", "/v1/keys").json(limited).await.expect(201);
    let reply = asks(&server, "/v1/events").key(limited["key"].as_str().unwrap()).await.with(204);
    assert_eq!(reply.header("webhook-allowed-rate"), Some("420"));
}

#[tokio::test]
async fn senders_without_a_key_are_only_told_what_the_operator_allows() {
    let server = Server::start().await;
    asks(&server, "/v1/events").await.expect_problem(401, "unauthorized");
    asks(&server, "/v1/events").key("ph_wrong").await.expect_problem(401, "unauthorized");
    let reader = &server.keys.only[&posthorn_domain::Scope::Read];
    asks(&server, "/v1/events").key(reader).await.expect_problem(403, "forbidden");
    let bad = server.ask("OPTIONS", "/v1/events").header("webhook-request-origin", "a b");
    bad.await.expect_problem(422, "invalid_request");
    // Without the question there is no consent, and nothing to refuse.
    let plain = server.ask("OPTIONS", "/v1/events").await.with(204);
    assert_eq!(plain.header("webhook-allowed-origin"), None);
    assert_eq!(plain.header("allow"), Some("GET, HEAD, OPTIONS, POST"));

    let options =
        Options { webhook_origins: vec!["Sender.Example".parse().unwrap()], ..Options::default() };
    let server = Server::start_as(ServeLimits::default(), options).await;
    let reply = asks(&server, "/v1/events").await.with(204);
    assert_eq!(reply.header("webhook-allowed-origin"), Some("sender.example"));
    assert!(reply.header("webhook-allowed-rate").is_some());
    asks(&server, "/v1/events").key("ph_wrong").await.expect_problem(401, "unauthorized");
    let other = server.ask("OPTIONS", "/v1/events").header("webhook-request-origin", "other");
    other.await.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn a_receiver_that_does_not_allow_us_is_a_stable_code() {
    let engine = posthorn_engine::Options {
        webhook_origin: Some("events.example.com".parse().unwrap()),
        ..posthorn_engine::Options::default()
    };
    let server = Server::start_limited(ServeLimits::default(), engine, Options::default()).await;
    let body =
        json!({"url": "https://ok.example/", "policy": {"request": {"handshake": "cloudevents"}}});
    let refused = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
    let refused = refused.expect_problem(422, "handshake_refused");
    assert_eq!(refused["field"], "url");
    assert!(refused["detail"].as_str().unwrap().contains("events.example.com"));
    let list = server.as_acme("GET", "/v1/subscriptions").await.expect(200);
    assert_eq!(list["items"], json!([]));
    let allowed = json!({"url": "https://slow-consent.example/", "policy": body["policy"]});
    let refused = server.as_acme("POST", "/v1/subscriptions").json(&allowed).await;
    let refused = refused.expect_problem(422, "handshake_rate");
    assert_eq!(refused["field"], "policy.limits.rate");
    let mut allowed = allowed;
    allowed["policy"]["limits"] = json!({"rate": 2});
    server.as_acme("POST", "/v1/subscriptions").json(&allowed).await.expect(201);
    // A server that is nobody cannot ask.
    let server = Server::start().await;
    let refused = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
    let refused = refused.expect_problem(422, "invalid_policy");
    assert_eq!(refused["field"], "policy.request.handshake");
}

#[tokio::test]
async fn a_cloudevent_is_found_by_its_id() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let id = structured(&server, &event()).await.expect(202)["id"].clone();
    let found = server.as_acme("GET", "/v1/events?publisher_id=A-1").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&found["items"][0]["id"], &found["items"][0]["publisher_id"]),
        (&id, &json!("A-1"))
    );
    // One of another source is another event, and a repeat is still the same.
    let mut other = event();
    other["source"] = json!("https://shop.example/us");
    assert_ne!(structured(&server, &other).await.expect(202)["id"], id);
    assert_eq!(structured(&server, &event()).await.expect(202)["duplicate"], true);
    let found = server.as_acme("GET", "/v1/events?publisher_id=A-1").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 2, "{found}");
}
