//! Publishing: once, in batches, again, and byte for byte.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// Payloads a careless server would change.
const ODD_PAYLOADS: [&str; 12] = [
    "{ \"a\" :\t1 ,\n\"b\": [ ] }",
    "123456789012345678901234567890.000100",
    "{\"n\":18446744073709551616,\"e\":1E+400,\"z\":-0.0}",
    r#""\u00e9\ud83d\ude00 \/ é""#,
    r#"{"a":1,"a":2}"#,
    r#"{"b":1,"a":2}"#,
    "null",
    "false",
    "\"\"",
    "[]",
    r#"{"text":"{[{[{[\"\\"}"#,
    r#"{"":{"__proto__":null}}"#,
];

#[tokio::test]
async fn payloads_reach_the_receiver_byte_for_byte() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/hook", json!({})).await;
    let large = format!("[\"{}\"]", "x".repeat(100_000));
    for payload in ODD_PAYLOADS.into_iter().chain([large.as_str()]) {
        let before = server.transport.sent_to("ok.example").len();
        let event = server.publish(&format!(" {payload}\n")).await;
        server.delivery_in(&event, "delivered").await;
        let sent = server.transport.sent_to("ok.example");
        assert_eq!(sent.len(), before + 1);
        let last = &sent[before];
        assert_eq!(last.body, payload.as_bytes(), "{payload}");
        assert_eq!(last.headers["webhook-id"], event.as_str());
        // And it is shown as it is kept.
        let path = format!("/v1/events/{event}");
        let shown = server.as_acme("GET", &path).await;
        let text = shown.body;
        assert!(text.contains(&format!("\"payload\":{payload}")), "{payload}: {text}");
    }
}

#[tokio::test]
async fn an_event_is_explained_from_end_to_end() {
    let server = Server::start().await;
    let wanted = server.subscribe("https://ok.example/", json!({})).await;
    let filter = json!({"filter": {"any_of": [{"types": ["invoice.*"]}]}});
    let unwanted = server.subscribe("https://ok.example/", filter).await;
    let body = json!({
        "topic": "orders", "type": "order.created", "payload": {"total": 12},
        "attributes": {"region": "eu"}, "key": "customer-7", "content_type": "application/json",
    });
    let reply = server.as_acme("POST", "/v1/events").json(&body).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let published = reply.expect(202);
    assert_eq!(published["deliveries"], 1);
    assert_eq!(published["duplicate"], false);
    let id = published["id"].as_str().unwrap();
    server.delivery_in(id, "delivered").await;

    let explained = server.as_acme("GET", &format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(explained["accepted_at"], published["accepted_at"]);
    for field in ["topic", "type", "payload", "attributes", "key", "content_type"] {
        assert_eq!(explained[field], body[field], "{field}");
    }
    assert_eq!(explained["payload_bytes"], 12);
    assert_eq!(explained["truncated"], false);
    let delivery = &explained["deliveries"][0];
    assert_eq!(delivery["subscription"], wanted["id"]);
    assert_eq!(delivery["state"], "delivered");
    assert!(delivery.get("due_at").is_none());
    assert_eq!(delivery["attempts"][0]["number"], 1);
    assert_eq!(delivery["attempts"][0]["status"], 200);
    assert_eq!(delivery["attempts"][0]["response"], "thanks");
    assert_eq!(explained["not_delivered"][0]["subscription"], unwanted["id"]);
    assert!(!explained["not_delivered"][0]["reasons"][0].as_str().unwrap().is_empty());

    let list = server.as_acme("GET", "/v1/events?topic=orders&type=order.created").await;
    let list = list.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["id"], published["id"]);
    assert!(list["items"][0].get("payload").is_none());
    let none = server.as_acme("GET", "/v1/events?type=other").await.expect(200);
    assert_eq!(none, json!({"items": []}));
}

#[tokio::test]
async fn a_repeat_under_the_same_key_is_one_event() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let publish = async |key: &'static str, body: &Value| {
        let ask = server.as_acme("POST", "/v1/events").header("idempotency-key", key);
        ask.json(body).await
    };
    let body = json!({"topic": "orders", "type": "order.created", "payload": {"a": 1}});
    let first = publish("key 1", &body).await.expect(202);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let again = publish("key 1", &body).await.expect(202);
    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["accepted_at"], first["accepted_at"]);
    assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
    assert_ne!(publish("key 2", &body).await.expect(202)["id"], first["id"]);
    // Every part counts.
    for (field, value) in [
        ("payload", json!({"a": 2})),
        ("type", json!("order.deleted")),
        ("key", json!("k")),
        ("attributes", json!({"a": "b"})),
        ("content_type", json!("application/cloudevents+json")),
    ] {
        let mut changed = body.clone();
        changed[field] = value;
        publish("key 1", &changed).await.expect_problem(409, "idempotency_key_reused");
    }
    // Keys belong to a tenant.
    let other = || server.ask("PUT", "/v1/topics/orders").key(&server.keys.other);
    other().json(json!({})).await.expect(200);
    let ask = server.ask("POST", "/v1/events").key(&server.keys.other);
    let theirs = ask.header("idempotency-key", "key 1").json(&body).await.expect(202);
    assert_eq!(theirs["duplicate"], false);
    let stats = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!(stats["events"], 2);
}

#[tokio::test]
async fn each_item_of_a_batch_stands_for_itself() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let deep = "[".repeat(65) + &"]".repeat(65);
    let large = "x".repeat(300_000);
    let items = [
        r#"{"topic":"orders","type":"a","payload": 1 ,"idempotency_key":"k"}"#.to_owned(),
        r#"{"topic":"nowhere","type":"a","payload":1}"#.to_owned(),
        r#"{"topic":"orders","type":"a b","payload":1}"#.to_owned(),
        r#"{"topic":"orders","type":"a","payload":1,"idempotency_key":"k"}"#.to_owned(),
        r#"{"topic":"orders","type":"a","payload":2,"idempotency_key":"k"}"#.to_owned(),
        r#"{"topic":"orders","type":"a"}"#.to_owned(),
        r#"{"topic":"orders","type":"a","payload":1,"nonsense":1}"#.to_owned(),
        "7".to_owned(),
        r#"["orders","a",1,{},null,null,null]"#.to_owned(),
        format!(r#"{{"topic":"orders","type":"a","payload":{deep}}}"#),
        format!(r#"{{"topic":"orders","type":"a","payload":"{large}"}}"#),
        r#"{"topic":"orders","type":"b","payload":{ }}"#.to_owned(),
    ];
    let body = format!(r#"{{"events":[{}]}}"#, items.join(","));
    let reply = server.as_acme("POST", "/v1/events/batch").text(&body).await.expect(200);
    let answers = reply["items"].as_array().unwrap();
    let seen: Vec<(u64, &str)> = answers
        .iter()
        .map(|item| {
            let code = item["error"]["code"].as_str().unwrap_or("");
            (item["status"].as_u64().unwrap(), code)
        })
        .collect();
    assert_eq!(
        seen,
        [
            (202, ""),
            (422, "unknown_topic"),
            (422, "invalid_request"),
            (202, ""),
            (409, "idempotency_key_reused"),
            (422, "invalid_request"),
            (422, "invalid_request"),
            (422, "invalid_request"),
            (422, "invalid_request"),
            (400, "invalid_json"),
            (413, "payload_too_large"),
            (202, ""),
        ]
    );
    assert_eq!(answers[3]["id"], answers[0]["id"]);
    assert_eq!(answers[3]["duplicate"], true);
    assert_eq!(answers[2]["error"]["field"], "type");
    assert_eq!(answers[5]["error"]["field"], "payload");
    assert_eq!(answers[6]["error"]["field"], "nonsense");
    assert_eq!(answers[11]["deliveries"], 1);
    for index in [0, 11] {
        server.delivery_in(answers[index]["id"].as_str().unwrap(), "delivered").await;
    }
    let mut bodies: Vec<_> =
        server.transport.sent_to("ok.example").into_iter().map(|sent| sent.body).collect();
    bodies.sort();
    assert_eq!(bodies, ["1", "{ }"]);
}

#[tokio::test]
async fn a_batch_of_well_formed_events_is_published_in_order() {
    let server = Server::start().await;
    let order = json!({"policy": {"order": {"scope": "subscription"}}});
    server.subscribe("https://ok.example/", order).await;
    let events: Vec<Value> =
        (0..1_000).map(|n| json!({"topic": "orders", "type": "n", "payload": n})).collect();
    let body = json!({"events": events});
    let reply = server.as_acme("POST", "/v1/events/batch").json(&body).await.expect(200);
    let answers = reply["items"].as_array().unwrap();
    assert_eq!(answers.len(), 1_000);
    assert!(answers.iter().all(|item| item["status"] == 202 && item["deliveries"] == 1));
    server.delivery_in(answers[999]["id"].as_str().unwrap(), "delivered").await;
    let sent = server.transport.sent_to("ok.example");
    let bodies: Vec<String> =
        sent.iter().map(|sent| String::from_utf8(sent.body.to_vec()).unwrap()).collect();
    let wanted: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    assert_eq!(bodies, wanted);

    let none = server.as_acme("POST", "/v1/events/batch").text(r#"{"events":[]}"#).await;
    assert_eq!(none.expect(200), json!({"items": []}));
}

#[tokio::test]
async fn an_event_can_be_published_again_to_all_who_want_it_now() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let first = server.publish("{\"n\": 1}").await;
    server.subscribe("https://ok.example/", json!({})).await;
    let path = format!("/v1/events/{first}/republish");
    let again = server.as_acme("POST", &path).await.expect(202);
    assert_eq!((&again["deliveries"], &again["duplicate"]), (&json!(1), &json!(false)));
    let again = again["id"].as_str().unwrap();
    assert_ne!(again, first);
    server.delivery_in(again, "delivered").await;
    let payload = async |id: &str| {
        let event = server.as_acme("GET", &format!("/v1/events/{id}")).await.expect(200);
        (event["payload"].clone(), event["topic"].clone(), event["type"].clone())
    };
    assert_eq!(payload(again).await, payload(&first).await);
    let other = server.ask("POST", &path).key(&server.keys.other).await;
    other.expect_problem(404, "not_found");
}

#[tokio::test]
async fn an_event_may_be_delivered_later_and_kept_for_a_shorter_time() {
    let server = Server::start().await;
    let order = json!({"policy": {"order": {"scope": "subscription"}}});
    server.subscribe("https://ok.example/", order).await;
    server.subscribe("https://ok.example/", json!({})).await;
    let event = |deliver_at: &str| {
        json!({"topic": "orders", "type": "a", "payload": 1, "deliver_at": deliver_at,
            "retention": "1h"})
    };
    // A date of the next year, but not more than a year ahead.
    let now: posthorn_domain::Timestamp = {
        let published = server.publish("0").await;
        published.parse::<posthorn_domain::EventId>().expect("an id").made_at()
    };
    let later = now.plus(posthorn_domain::Span::from_secs(300 * 86_400)).to_string();
    let body = json!({"events": [event(&later), event("2020-01-01T00:00:00+01:00"), event("x")]});
    let items = server.as_acme("POST", "/v1/events/batch").json(&body).await.expect(200);
    let status = |index: usize| items["items"][index]["status"].as_u64();
    assert_eq!([status(0), status(1), status(2)], [Some(202), Some(202), Some(422)]);
    assert_eq!(items["items"][2]["error"]["field"], "deliver_at");
    let id = |index: usize| items["items"][index]["id"].as_str().expect("an id").to_owned();
    let shown = server.as_acme("GET", &format!("/v1/events/{}", id(0))).await.expect(200);
    assert_eq!((&shown["deliver_at"], &shown["retention"]), (&json!(later), &json!("1h")));
    for delivery in shown["deliveries"].as_array().expect("a list") {
        assert_eq!((&delivery["state"], &delivery["due_at"]), (&json!("pending"), &json!(later)));
        assert_eq!(delivery["waiting"], json!({"reason": "scheduled", "until": later}));
        let path = format!("/v1/deliveries/{}", delivery["id"].as_str().expect("an id"));
        let retry = server.as_acme("POST", &format!("{path}/retry")).await;
        retry.expect_problem(409, "delivery_scheduled");
        let timeline = server.as_acme("GET", &format!("{path}/timeline")).await.expect(200);
        let last = timeline["steps"].as_array().and_then(|steps| steps.last()).expect("a step");
        assert_eq!((&last["reason"], &last["until"]), (&json!("scheduled"), &json!(later)));
        assert_eq!(last["explain"]["code"], "scheduled");
        let cancelled = server.as_acme("POST", &format!("{path}/cancel")).await.expect(200);
        assert_eq!(cancelled["state"], "cancelled");
    }
    // A time in the past means now, and is not kept.
    let shown = server.as_acme("GET", &format!("/v1/events/{}", id(1))).await.expect(200);
    assert!(shown.get("deliver_at").is_none(), "{shown}");
    server.delivery_in(&id(1), "delivered").await;
    let kept = json!({"topic": "orders", "type": "a", "payload": 1, "retention": "9999d"});
    let refused = server.as_acme("POST", "/v1/events").json(&kept).await;
    let problem = refused.expect_problem(422, "invalid_request");
    assert!(problem["detail"].as_str().expect("a text").contains("must be at most"), "{problem}");
}
