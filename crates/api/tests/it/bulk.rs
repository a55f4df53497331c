//! Many deliveries at once: cancelled, forgotten or retried by a filter.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};
use crate::replaying::finished;

const BULK: &str = "/v1/deliveries/bulk";

#[tokio::test]
async fn what_matches_is_counted_then_cancelled_or_forgotten() {
    let server = Server::start().await;
    let once = json!({"name": "dead", "policy": {"schedule": {"max_attempts": 1}}});
    server.subscribe("https://dead.example/", once).await;
    let paused = server.subscribe("https://ok.example/", json!({"name": "waits"})).await;
    server.as_acme("POST", "/v1/subscriptions/waits/pause").await.expect(200);
    let mut events = Vec::new();
    for number in 0..3 {
        events.push(server.publish(&number.to_string()).await);
    }
    for _ in 0..1_000 {
        let counts = server.as_acme("GET", "/v1/stats").await.expect(200);
        if (&counts["dead"], &counts["pending"]) == (&json!(3), &json!(3)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bulk = async |body: Value| server.as_acme("POST", BULK).json(&body).await;
    let count = async |body: Value| {
        let path = format!("{BULK}/count");
        server.as_acme("POST", &path).json(&body).await.expect(200)["count"].clone()
    };
    let cancel = json!({"action": "cancel", "subscription": "waits"});
    assert_eq!(count(cancel.clone()).await, 3);
    assert_eq!(count(json!({"action": "forget", "state": "dead", "status": "5xx"})).await, 3);
    assert_eq!(
        count(json!({"action": "forget", "state": "dead", "status": 404.to_string()})).await,
        0
    );
    assert_eq!(count(json!({"action": "forget", "event": events[0]})).await, 2);

    let job = finished(&server, &bulk(cancel).await.expect(201)).await;
    assert_eq!(
        (&job["kind"], &job["done"], &job["state"]),
        (&json!("cancel"), &json!(3), &json!("done"))
    );
    assert_eq!(job["deliveries"]["subscription"], paused["id"]);
    assert!(job["created_by"].as_str().is_some_and(|who| who.starts_with("key_")), "{job}");
    let list =
        server.as_acme("GET", "/v1/deliveries?state=cancelled&reason=operator").await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3));

    let forget = json!({"action": "forget", "reason": "exhausted", "event": events[0]});
    let job = finished(&server, &bulk(forget).await.expect(201)).await;
    assert_eq!((&job["kind"], &job["done"]), (&json!("forget"), &json!(1)));
    let dead = server.as_acme("GET", "/v1/dead-letters").await.expect(200);
    assert_eq!(dead["items"].as_array().map(Vec::len), Some(2), "the others stay");
}

#[tokio::test]
async fn what_matches_is_counted_then_tried_again_once() {
    let server = Server::start().await;
    let once = json!({"name": "dead", "policy": {"schedule": {"max_attempts": 1}}});
    server.subscribe("https://dead.example/", once).await;
    server.subscribe("https://ok.example/", json!({"name": "ok"})).await;
    let (first, second) = (server.publish("1").await, server.publish("2").await);
    let settled = async |dead: u64, delivered: u64, tries: usize| {
        for _ in 0..1_000 {
            let counts = server.as_acme("GET", "/v1/stats").await.expect(200);
            let list = server.as_acme("GET", "/v1/attempts?limit=100").await.expect(200);
            let made = list["items"].as_array().map_or(0, Vec::len);
            let now = (&counts["dead"], &counts["delivered"], made);
            if now == (&json!(dead), &json!(delivered), tries) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never {dead} dead and {delivered} delivered after {tries} attempts");
    };
    settled(2, 2, 4).await;
    let bulk = async |body: Value| server.as_acme("POST", BULK).json(&body).await;
    let count = async |body: Value| {
        let path = format!("{BULK}/count");
        server.as_acme("POST", &path).json(&body).await.expect(200)["count"].clone()
    };
    let of_event = json!({"action": "retry", "event": first});
    assert_eq!(count(of_event.clone()).await, 1, "without a state, what is dead");
    assert_eq!(count(json!({"action": "retry", "status": "500"})).await, 2);
    assert_eq!(count(json!({"action": "retry", "status": "404"})).await, 0);
    assert_eq!(count(json!({"action": "retry", "state": "delivered"})).await, 2);
    assert_eq!(count(json!({"action": "retry", "reason": "operator"})).await, 0);

    let job = finished(&server, &bulk(of_event).await.expect(201)).await;
    assert_eq!(
        (&job["kind"], &job["done"], &job["state"], &job["deliveries"]["state"]),
        (&json!("retry"), &json!(1), &json!("done"), &json!("dead"))
    );
    settled(2, 2, 5).await;
    let again = json!({"action": "retry", "state": "delivered", "event": second});
    let job = finished(&server, &bulk(again).await.expect(201)).await;
    assert_eq!(job["done"], 1);
    settled(2, 2, 6).await;
    // Nothing is sent to somebody who is gone.
    server.as_acme("DELETE", "/v1/subscriptions/dead").await.expect(204);
    assert_eq!(count(json!({"action": "retry", "state": "dead"})).await, 0);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_beside_its_field() {
    let server = Server::start().await;
    for (body, field) in [
        (json!({"action": "forget"}), "state"),
        (json!({"action": "repeat", "state": "dead"}), "action"),
        (json!({"action": "retry"}), "state"),
        (json!({"action": "retry", "state": "pending"}), "state"),
        (json!({"action": "retry", "state": "in_flight"}), "state"),
        (json!({"action": "retry", "state": "dead", "reason": "operator"}), "reason"),
        (json!({"action": "cancel", "state": "delivered"}), "state"),
        (json!({"action": "cancel", "reason": "operator"}), "state"),
        (json!({"action": "cancel", "state": "in_flight"}), "state"),
        (json!({"action": "forget", "state": "dead", "reason": "operator"}), "reason"),
        (json!({"action": "forget", "reason": "boredom"}), "reason"),
        (json!({"action": "forget", "status": "9xx"}), "status"),
        (json!({"action": "forget", "status": "5xx", "failure": "timeout"}), "failure"),
        (json!({"action": "forget", "subscription": "nobody"}), "subscription"),
        (json!({"action": "forget", "event": "evt_01hf7yat00000000000000000z"}), "event"),
        (json!({"action": "forget", "state": "dead", "per_second": 0}), "per_second"),
        (json!({"action": "forget", "lane": "x"}), "lane"),
        (
            json!({"action": "forget", "from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}),
            "until",
        ),
    ] {
        let refused = server.as_acme("POST", BULK).json(&body).await;
        assert_eq!(refused.expect_problem(422, "invalid_request")["field"], field, "{body}");
    }
}
