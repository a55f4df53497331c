//! Filters that are tried out, and conditions that name several values.

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

async fn test(server: &Server, body: Value) -> Value {
    server.as_acme("POST", "/v1/filters/test").json(body).await.expect(200)
}

fn event() -> Value {
    json!({"topic": "orders", "type": "order.created", "attributes": {"region": "eu"},
        "payload": {"total": 12}, "key": "k", "content_type": "application/json"})
}

#[tokio::test]
async fn a_filter_is_tried_out_before_it_is_anybodys() {
    let server = Server::start().await;
    let filter = json!({"any_of": [
        {"types": ["refund.*"]},
        {"attributes": {"region": ["us", "asia"]}},
        {"payload": {"test": {"path": "/total", "op": "in", "value": [10, 11]}}},
    ]});
    let outcome = test(&server, json!({"filter": filter, "event": event()})).await;
    assert_eq!(outcome["matches"], false);
    assert_eq!(
        outcome["reasons"],
        json!([
            "the event type matches none of the filter's patterns",
            "attribute `region` is none of the filter's values or is missing",
            "the payload does not satisfy the filter's condition",
        ])
    );
    assert!(outcome["cost"].as_u64().unwrap() > 0, "{outcome}");
    let filter = json!({"any_of": [{"attributes": {"region": ["us", "eu"]}}]});
    let outcome = test(&server, json!({"filter": filter, "event": event()})).await;
    assert_eq!((&outcome["matches"], &outcome["reasons"]), (&true.into(), &json!([])));
    // A payload is taken as it is published, repeated names included.
    let body = r#"{"filter": {"any_of": [{"payload": {"test": {"path": "/a", "op": "eq", "value": 2}}}]},
        "event": {"topic": "orders", "type": "a", "payload": {"a": 1, "a": 2}}}"#;
    let outcome = server.as_acme("POST", "/v1/filters/test").text(body).await.expect(200);
    assert_eq!(outcome["matches"], true);
    let stats = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!(stats["events"], 0, "nothing is kept");
}

#[tokio::test]
async fn an_event_that_was_published_is_explained_in_the_same_words() {
    let server = Server::start().await;
    let filter = json!({"any_of": [{"attributes": {"region": ["us", "asia"]}}, {"types": ["x"]}]});
    let contents = json!({"name": "billing", "filter": filter});
    let made = server.subscribe("https://ok.example/", contents).await;
    assert_eq!(made["filter"]["any_of"], filter["any_of"], "comes back as it was given");
    let id = server.publish("1").await;
    let explained = server.as_acme("GET", &format!("/v1/events/{id}")).await.expect(200);
    let reasons = &explained["not_delivered"][0]["reasons"];
    assert_eq!(reasons.as_array().unwrap().len(), 2, "{explained}");
    for subscription in [&json!("billing"), &made["id"]] {
        let outcome = test(&server, json!({"subscription": subscription, "event_id": id})).await;
        assert_eq!((&outcome["matches"], &outcome["reasons"]), (&false.into(), reasons));
    }
    let outcome = test(&server, json!({"filter": made["filter"], "event_id": id})).await;
    assert_eq!(&outcome["reasons"], reasons);
    let outcome = test(&server, json!({"subscription": "billing", "event": event()})).await;
    assert_eq!(outcome["matches"], false);
    let everything = json!({"filter": {"any_of": [{}]}, "event_id": id});
    assert_eq!(test(&server, everything).await["matches"], true);
}

#[tokio::test]
async fn what_cannot_be_tested_is_refused_with_the_place() {
    let server = Server::start().await;
    let unknown = "evt_01hf7yat00000000000000000z";
    let everything = json!({"any_of": [{}]});
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let values = |values: Value| json!({"any_of": [{"attributes": {"region": values}}]});
    let with = |field: &str, value: Value| {
        let mut event = event();
        event[field] = value;
        json!({"filter": everything, "event": event})
    };
    let long: String = "x".repeat(300 << 10);
    for (body, status, code, field) in [
        (json!({}), 422, "invalid_request", Some("filter")),
        (json!({"filter": everything}), 422, "invalid_request", Some("event")),
        (json!({"event": event()}), 422, "invalid_request", Some("filter")),
        (
            json!({"filter": everything, "subscription": "a", "event": event()}),
            422,
            "invalid_request",
            Some("filter"),
        ),
        (
            json!({"filter": everything, "event": event(), "event_id": unknown}),
            422,
            "invalid_request",
            Some("event"),
        ),
        (json!({"filters": everything, "event": event()}), 422, "invalid_request", Some("filters")),
        (json!({"filter": [], "event": event()}), 422, "invalid_request", Some("filter")),
        (
            json!({"filter": {"any_of": [{"topic": 1}]}, "event": event()}),
            422,
            "invalid_request",
            Some("filter.any_of[0].topic"),
        ),
        (
            json!({"filter": values(json!(["a", 1])), "event": event()}),
            422,
            "invalid_request",
            Some("filter.any_of[0].attributes.region[1]"),
        ),
        (
            json!({"filter": values(json!([])), "event": event()}),
            422,
            "invalid_filter",
            Some("filter"),
        ),
        (
            json!({"filter": values(json!(many)), "event_id": unknown}),
            422,
            "invalid_filter",
            Some("filter"),
        ),
        (with("topic", json!("a b")), 422, "invalid_request", Some("event.topic")),
        (with("payload", json!(long)), 413, "payload_too_large", Some("event.payload")),
        (
            with("idempotency_key", json!("k")),
            422,
            "invalid_request",
            Some("event.idempotency_key"),
        ),
        (with("colour", json!("red")), 422, "invalid_request", Some("event.colour")),
        (with("attributes", json!({"a": 1})), 422, "invalid_request", Some("event.attributes.a")),
        (json!({"filter": everything, "event_id": unknown}), 404, "not_found", None),
        (json!({"filter": everything, "event_id": "x"}), 404, "not_found", None),
        (json!({"subscription": "nobody", "event": event()}), 404, "not_found", None),
    ] {
        let shown: String = body.to_string().chars().take(200).collect();
        let reply = server.as_acme("POST", "/v1/filters/test").json(&body).await;
        assert_eq!(reply.status, status, "{shown}: {:?}", reply.body);
        let problem = reply.expect_problem(status, code);
        assert_eq!(problem["field"].as_str(), field, "{shown}: {problem}");
    }
    let twice = r#"{"filter": {"any_of": [], "any_of": []}, "event_id": "x"}"#;
    let reply = server.as_acme("POST", "/v1/filters/test").text(twice).await;
    reply.expect_problem(400, "invalid_json");
}
