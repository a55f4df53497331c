//! Removing payloads and responses: what stays, what is refused, and who may do it.

use std::time::Duration;

use posthorn_domain::Scope;
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

async fn finished(server: &Server, job: &Value) -> Value {
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    for _ in 0..1_000 {
        let job = server.as_acme("GET", &path).await.expect(200);
        if job["state"] != "running" {
            return job;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} never ends");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn an_event_stays_and_nothing_of_it_is_sent_again() {
    let server = Server::start().await;
    let made = server.subscribe("https://ok.example/", json!({"name": "one"})).await;
    let (mut body, other) =
        (json!({"topic": "orders", "type": "a", "payload": {"secret": 1}}), json!({"name": "two"}));
    body["attributes"] = json!({"color": "red"});
    let publish = || server.as_acme("POST", "/v1/events").header("idempotency-key", "mine");
    let event = text(&publish().json(&body).await.expect(202)["id"]).to_owned();
    let delivery = server.delivery_in(&event, "delivered").await;
    server.subscribe("https://two.example/", other).await;
    let path = format!("/v1/events/{event}");
    let before = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(before["payload"], json!({"secret": 1}));

    let expunge = async |query: &str| {
        server.as_acme("DELETE", &format!("{path}/payload{query}")).await.expect(200)
    };
    let gone = expunge("").await;
    assert_eq!((&gone["id"], &gone["payload_bytes"]), (&json!(event), &json!(0)));
    assert!(gone["expunged_at"].is_string(), "{gone}");
    assert_eq!(
        expunge("?cancel=true&responses=false").await,
        gone,
        "the same, with the first time"
    );
    let shown = server.as_acme("GET", &path).await.expect(200);
    assert_eq!((&shown["payload"], &shown["payload_base64"]), (&Value::Null, &Value::Null));
    assert_eq!(shown["deliveries"], before["deliveries"], "what became of it stays");
    for field in ["id", "topic", "type", "attributes", "accepted_at", "publisher_id"] {
        assert_eq!(shown[field], before[field], "{field}");
    }
    let list = server.as_acme("GET", "/v1/events?attribute=color%3Dred").await.expect(200);
    assert_eq!(list["items"], json!([gone]));
    let again = publish().json(&body).await.expect(202);
    assert_eq!((&again["id"], &again["duplicate"]), (&json!(event), &json!(true)));

    let id = text(&delivery["id"]);
    let refused = async |method: &str, path: &str, body: Option<Value>| {
        let call = server.as_acme(method, path);
        let call = match body {
            Some(body) => call.json(body),
            None => call,
        };
        call.await.expect_problem(409, "event_expunged");
    };
    refused("POST", &format!("/v1/deliveries/{id}/retry"), None).await;
    refused("GET", &format!("/v1/deliveries/{id}/request"), None).await;
    refused("POST", &format!("{path}/republish"), None).await;
    for to in ["one", "two"] {
        refused("POST", &format!("{path}/deliver"), Some(json!({"subscription": to}))).await;
    }
    let test = json!({"filter": {"any_of": [{}]}, "event_id": event});
    refused("POST", "/v1/filters/test", Some(test)).await;
    for (to, status) in [("one", "delivered"), ("one", "all"), ("two", "missed")] {
        let (replay, body) = (format!("/v1/subscriptions/{to}/replay"), json!({"status": status}));
        let count = server.as_acme("POST", &format!("{replay}/count")).json(&body).await;
        assert_eq!(count.expect(200)["count"], 0);
        let job = server.as_acme("POST", &replay).json(&body).await.expect(201);
        let job = finished(&server, &job).await;
        assert_eq!((&job["done"], &job["state"]), (&json!(0), &json!("done")), "{to} {status}");
    }
    let timeline = format!("/v1/deliveries/{id}/timeline");
    let timeline = server.as_acme("GET", &timeline).await.expect(200);
    let last = timeline["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, json!({"at": gone["expunged_at"], "step": "expunged"}));
    assert_eq!(server.transport.sent_to("ok.example").len(), 1);
    assert!(server.transport.sent_to("two.example").is_empty());
    server.as_acme("DELETE", &format!("/v1/subscriptions/{}", text(&made["id"]))).await.expect(204);
    let counts = server.as_acme("GET", "/v1/stats").await.expect(200);
    assert_eq!((&counts["events"], &counts["delivered"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_filter_that_tests_the_payload_is_not_explained_by_what_is_gone() {
    let server = Server::start().await;
    let filter = json!({"any_of": [{"payload": {"test": {"path": "/a", "op": "eq", "value": 2}}}]});
    server.subscribe("https://ok.example/", json!({"filter": filter})).await;
    let event = server.publish(r#"{"a":1}"#).await;
    let path = format!("/v1/events/{event}");
    server.as_acme("DELETE", &format!("{path}/payload")).await.expect(200);
    let shown = server.as_acme("GET", &path).await.expect(200);
    let why = shown["not_delivered"][0]["reasons"][0].as_str().unwrap();
    assert!(why.contains("removed"), "{why}");
}

#[tokio::test]
async fn what_has_not_ended_is_refused_or_cancelled() {
    let server = Server::start().await;
    server.subscribe("https://dead.example/", json!({"name": "retries"})).await;
    server.subscribe("https://ok.example/", json!({})).await;
    let paused = json!({"paused": true});
    server.subscribe("https://paused.example/", paused).await;
    let event = server.publish("1").await;
    let path = format!("/v1/events/{event}/payload");
    for query in ["", "?cancel=false", "?responses=true"] {
        let refused = server.as_acme("DELETE", &format!("{path}{query}")).await;
        let problem = refused.expect_problem(409, "deliveries_not_ended");
        assert!(text(&problem["detail"]).contains("cancel"), "{problem}");
    }
    let kept = server.as_acme("GET", &format!("/v1/events/{event}")).await.expect(200);
    assert_eq!((&kept["payload"], &kept["expunged_at"]), (&json!(1), &Value::Null));

    let gone = server.as_acme("DELETE", &format!("{path}?cancel=true&responses=true")).await;
    assert!(gone.expect(200)["expunged_at"].is_string());
    let list = server.as_acme("GET", &format!("/v1/deliveries?event={event}")).await.expect(200);
    let states: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|item| text(&item["state"])).collect();
    assert_eq!(states.len(), 3);
    assert!(states.iter().all(|state| ["cancelled", "delivered"].contains(state)), "{states:?}");
    assert!(server.transport.sent_to("paused.example").is_empty());
}

#[tokio::test]
async fn responses_go_one_by_one_or_with_their_event() {
    let server = Server::start().await;
    let schedule = json!({"max_attempts": 2, "backoff": {"fixed": {"wait": "10ms"}}});
    let twice = json!({"policy": {"schedule": schedule}});
    server.subscribe("https://dead.example/", twice).await;
    let event = server.publish("1").await;
    let delivery = server.delivery_in(&event, "dead").await;
    let path = format!("/v1/deliveries/{}", text(&delivery["id"]));
    let whole = server.as_acme("GET", &path).await.expect(200);
    assert_eq!(whole["attempts"][1]["response"], "no");

    let expunge = async |number: &str| {
        server.as_acme("DELETE", &format!("{path}/attempts/{number}/response")).await
    };
    let left = expunge("2").await.expect(200);
    let [first, second] = [0, 1].map(|index| left["attempts"][index].clone());
    assert_eq!(first, whole["attempts"][0], "only the one that was named");
    assert_eq!((&second["response"], &second["status"]), (&Value::Null, &json!(500)));
    assert!(second["response_expunged_at"].is_string());
    assert_eq!(second["took_ms"], whole["attempts"][1]["took_ms"]);
    assert_eq!(expunge("2").await.expect(200), left, "the same, with the first time");
    for unknown in ["0", "3", "x", "-1", "1.5", "4294967296"] {
        expunge(unknown).await.expect_problem(404, "not_found");
    }
    let query = server.as_acme("DELETE", &format!("{path}/attempts/1/response?cancel=true")).await;
    query.expect_problem(422, "invalid_request");

    let payload = format!("/v1/events/{event}/payload");
    server.as_acme("DELETE", &payload).await.expect(200);
    let listed = async || {
        let list = server.as_acme("GET", &format!("/v1/attempts?event={event}")).await.expect(200);
        list["items"].as_array().unwrap().iter().filter(|item| item["response"].is_string()).count()
    };
    assert_eq!(listed().await, 1, "not asked for");
    server.as_acme("DELETE", &format!("{payload}?responses=true")).await.expect(200);
    assert_eq!(listed().await, 0);
}

#[tokio::test]
async fn many_are_expunged_by_a_job() {
    let server = Server::start().await;
    let filter = json!({"any_of": [{"types": ["order.created"]}]});
    server.subscribe("https://ok.example/", json!({"filter": filter})).await;
    let slow = json!({"paused": true, "filter": {"any_of": [{"types": ["waits"]}]}});
    server.subscribe("https://paused.example/", slow).await;
    let publish = async |kind: &str| {
        let body = json!({"topic": "orders", "type": kind, "payload": {"secret": kind}});
        let made = server.as_acme("POST", "/v1/events").json(&body).await.expect(202);
        text(&made["id"]).to_owned()
    };
    for _ in 0..3 {
        let event = publish("order.created").await;
        server.delivery_in(&event, "delivered").await;
    }
    let (waits, other) = (publish("waits").await, publish("other").await);
    let types = json!({"types": ["order.created", "waits"]});
    let count = async |body: &Value| {
        let reply = server.as_acme("POST", "/v1/events/expunge/count").json(body).await.expect(200);
        (reply["count"].as_u64().unwrap(), reply["seen"].as_u64().unwrap())
    };
    assert_eq!(count(&types).await, (3, 4), "the one that waits is passed over");
    let expunge = async |body: &Value| {
        let job = server.as_acme("POST", "/v1/events/expunge").json(body).await.expect(201);
        finished(&server, &job).await
    };
    let job = expunge(&types).await;
    assert_eq!((&job["kind"], &job["responses"]), (&json!("expunge"), &json!(false)));
    assert_eq!((&job["done"], &job["seen"], &job["state"]), (&json!(3), &json!(4), &json!("done")));
    assert_eq!(job["events"]["types"], types["types"]);
    assert_eq!(count(&types).await, (0, 4));
    assert_eq!(expunge(&types).await["done"], 0, "what is gone is gone");
    let both = json!({"types": ["order.created"], "responses": true, "per_second": 2});
    assert_eq!(count(&both).await, (3, 3), "what receivers said is still there");
    assert_eq!(expunge(&both).await["done"], 3);
    assert_eq!(count(&both).await, (0, 3));
    for (event, payload) in [(&waits, "waits"), (&other, "other")] {
        let kept = server.as_acme("GET", &format!("/v1/events/{event}")).await.expect(200);
        assert_eq!(kept["payload"]["secret"], payload);
    }
    let jobs = server.as_acme("GET", "/v1/jobs").await.expect(200);
    assert_eq!(jobs["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn an_empty_or_wrong_request_removes_nothing() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let event = server.publish("1").await;
    for path in ["/v1/events/expunge", "/v1/events/expunge/count"] {
        for (body, field) in [
            (json!({}), "from"),
            (json!({"responses": true, "per_second": 5}), "from"),
            (json!({"topics": [], "types": [], "attributes": {}}), "from"),
            (json!({"from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}), "until"),
            (json!({"types": ["a"], "per_second": 0}), "per_second"),
            (json!({"types": ["a"], "per_second": 5_001}), "per_second"),
            (json!({"types": ["a"], "responses": "yes"}), "responses"),
            (json!({"types": "a"}), "types"),
            (json!({"types": vec!["a"; 21]}), "types"),
            (json!({"since": "2026-01-01T00:00:00Z"}), "since"),
            (json!({"types": ["a"], "status": "all"}), "status"),
        ] {
            let refused = server.as_acme("POST", path).json(&body).await;
            let problem = refused.expect_problem(422, "invalid_request");
            assert_eq!(problem["field"], field, "{body}");
        }
    }
    let path = format!("/v1/events/{event}/payload");
    for query in ["?responses=yes", "?cancel=1", "?force=true", "?cancel=true&cancel=true"] {
        let refused = server.as_acme("DELETE", &format!("{path}{query}")).await;
        refused.expect_problem(422, "invalid_request");
    }
    for (scope, key) in &server.keys.only {
        let allowed = *scope == Scope::Manage;
        let body = json!({"types": ["none"]});
        let reply = server.ask("POST", "/v1/events/expunge").key(key).json(&body).await;
        assert_eq!(reply.status, if allowed { 201 } else { 403 }, "{scope:?}");
        if !allowed {
            assert_eq!(server.ask("DELETE", &path).key(key).await.status, 403, "{scope:?}");
        }
    }
    let unknown = "/v1/events/evt_01hf7yat00000000000000000z/payload";
    server.as_acme("DELETE", unknown).await.expect_problem(404, "not_found");
    let kept = server.as_acme("GET", &format!("/v1/events/{event}")).await.expect(200);
    assert_eq!((&kept["payload"], &kept["expunged_at"]), (&json!(1), &Value::Null));
}

/// A job that cannot go on says why.
#[tokio::test]
async fn a_job_that_fails_says_why() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    for _ in 0..5 {
        server.publish("1").await;
    }
    let made = server.subscribe("https://ok.example/", json!({"name": "short"})).await;
    let slow = json!({"per_second": 1});
    let job =
        server.as_acme("POST", "/v1/subscriptions/short/replay").json(&slow).await.expect(201);
    assert_eq!((&job["state"], &job["problem"]), (&json!("running"), &Value::Null));
    let path = format!("/v1/subscriptions/{}", text(&made["id"]));
    server.as_acme("DELETE", &path).await.expect(204);
    let job = finished(&server, &job).await;
    assert_eq!(job["state"], "failed");
    assert_eq!(job["problem"], "the subscription was deleted");
    assert!(job["finished_at"].is_string());
}
