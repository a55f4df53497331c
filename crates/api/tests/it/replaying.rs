//! Events of the past: replays, resends, one event for one subscription, and subscriptions that begin in the past.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

pub(crate) async fn finished(server: &Server, job: &Value) -> Value {
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

/// How many requests a receiver got, once it got as many as wanted.
async fn got(server: &Server, url: &str, wanted: usize) -> usize {
    let count = || server.transport.sent_to(url).len();
    for _ in 0..500 {
        if count() >= wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    count()
}

async fn publish(server: &Server, kind: &str) -> String {
    let body =
        json!({"topic": "orders", "type": kind, "payload": {}, "attributes": {"kind": kind}});
    let made = server.as_acme("POST", "/v1/events").json(&body).await.expect(202);
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_subscription_may_begin_in_the_past() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(publish(&server, "order.created").await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let body = json!({
        "url": "https://late.example/", "start": {"event": events[2]},
        "filter": {"any_of": [{"types": ["order.created"]}]},
    });
    let made = server.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201);
    publish(&server, "order.created").await;
    assert_eq!(got(&server, "late.example", 4).await, 4, "three of the past, one of the present");
    let jobs = server.as_acme("GET", "/v1/jobs").await.expect(200);
    let job = finished(&server, &jobs["items"][0]).await;
    assert_eq!(
        (&job["state"], &job["done"], &job["kind"]),
        (&json!("done"), &json!(3), &json!("replay"))
    );
    assert_eq!(job["subscription"], made["id"]);
    assert!(job["created_by"].as_str().unwrap().starts_with("key_"));
    let list = format!("/v1/deliveries?subscription={}", made["id"].as_str().unwrap());
    assert_eq!(
        server.as_acme("GET", &list).await.expect(200)["items"].as_array().unwrap().len(),
        4
    );

    for (start, field) in [
        (json!({"event": "evt_01hf7yat00000000000000000z"}), "start.event"),
        (json!({"time": "2999-01-01T00:00:00Z"}), "start.time"),
        (json!({}), "start"),
        (json!({"time": "2026-01-01T00:00:00Z", "event": events[0]}), "start"),
        (json!({"day": 1}), "start.day"),
    ] {
        let body = json!({"url": "https://late.example/", "start": start});
        let refused = server.as_acme("POST", "/v1/subscriptions").json(&body).await;
        assert_eq!(refused.expect_problem(422, "invalid_request")["field"], field, "{start}");
    }
    let body = json!({"url": "https://late.example/", "start": {"time": "2001-01-01T00:00:00Z"}});
    // The default tenant has always been there; of one that is younger than the retention, nothing is gone.
    let old = server.as_operator("POST", "/v1/subscriptions").json(&body).await;
    let problem = old.expect_problem(422, "history_not_kept");
    assert!(problem["detail"].as_str().unwrap().contains("kept from"), "{problem}");
    let none = server.as_operator("GET", "/v1/subscriptions").await.expect(200);
    assert_eq!(none["items"].as_array().unwrap().len(), 0, "nothing half done");
    let subscriptions = server.as_acme("GET", "/v1/subscriptions").await.expect(200);
    assert_eq!(subscriptions["items"].as_array().unwrap().len(), 1, "nothing half done");
}

/// Events of one batch are accepted in one moment, and have an order all the same.
#[tokio::test]
async fn a_subscription_begins_with_one_event_of_a_batch() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let one = |n: u32| json!({"topic": "orders", "type": "order.created", "payload": {"n": n}});
    let batch: Vec<Value> = (0..40).map(one).collect();
    let body = json!({"events": batch});
    let made = server.as_acme("POST", "/v1/events/batch").json(&body).await.expect(200);
    let ids: Vec<String> = made["items"]
        .as_array()
        .expect("answers")
        .iter()
        .map(|made| made["id"].as_str().expect("an id").to_owned())
        .collect();
    let times = server.as_acme("GET", "/v1/events?limit=200").await.expect(200);
    let times: BTreeSet<&str> = times["items"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["accepted_at"].as_str().expect("a time"))
        .collect();
    assert_eq!(times.len(), 1, "one moment");
    let body = json!({"url": "https://late.example/", "start": {"event": ids[29]}});
    let made = server.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201);
    publish(&server, "order.created").await;
    assert_eq!(got(&server, "late.example", 12).await, 12, "eleven of the past and a new one");
    let list = format!("/v1/deliveries?limit=200&subscription={}", made["id"].as_str().unwrap());
    let deliveries = server.as_acme("GET", &list).await.expect(200);
    let deliveries = deliveries["items"].as_array().expect("deliveries").clone();
    let got: BTreeSet<&str> =
        deliveries.iter().map(|delivery| delivery["event"].as_str().expect("an id")).collect();
    assert_eq!((deliveries.len(), got.len()), (12, 12), "one delivery each");
    assert!(ids[29..].iter().all(|id| got.contains(id.as_str())), "that one and those behind it");
    let jobs = server.as_acme("GET", "/v1/jobs").await.expect(200);
    assert_eq!(jobs["items"][0]["events"]["from_event"], ids[29].as_str());
    let job = finished(&server, &jobs["items"][0]).await;
    assert_eq!(job["done"], 11);
}

#[tokio::test]
async fn replays_deliver_what_was_missed_failed_or_delivered() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    for kind in ["a", "a", "b"] {
        publish(&server, kind).await;
    }
    let made = server.subscribe("https://ok.example/", json!({"name": "late"})).await;
    let path = format!("/v1/subscriptions/{}/replay", made["id"].as_str().unwrap());
    let count = async |body: Value| {
        let path = format!("{path}/count");
        server.as_acme("POST", &path).json(&body).await.expect(200)["count"].clone()
    };
    assert_eq!(count(json!({})).await, 3);
    assert_eq!(count(json!({"types": ["a"]})).await, 2);
    assert_eq!(count(json!({"attributes": {"kind": "b"}})).await, 1);
    assert_eq!(count(json!({"status": "delivered"})).await, 0);
    assert_eq!(got(&server, "ok.example", 0).await, 0, "a count changes nothing");

    let replay = async |body: Value| {
        let job = server.as_acme("POST", &path).json(&body).await.expect(201);
        finished(&server, &job).await
    };
    let job = replay(json!({"types": ["a"]})).await;
    assert_eq!((&job["done"], &job["state"]), (&json!(2), &json!("done")));
    assert_eq!(got(&server, "ok.example", 2).await, 2);
    assert_eq!(replay(json!({})).await["done"], 1, "the others are there already");
    assert_eq!(got(&server, "ok.example", 3).await, 3);
    assert_eq!(replay(json!({})).await["done"], 0);
    assert_eq!(replay(json!({"status": "delivered"})).await["done"], 3);
    assert_eq!(got(&server, "ok.example", 6).await, 6);
    assert_eq!(replay(json!({"status": "all", "types": ["b"]})).await["done"], 1);

    for (body, field) in [
        (json!({"per_second": 0}), "per_second"),
        (json!({"from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}), "until"),
        (json!({"status": "lost"}), "status"),
        (json!({"since": "2026-01-01T00:00:00Z"}), "since"),
    ] {
        let refused = server.as_acme("POST", &path).json(&body).await;
        assert_eq!(refused.expect_problem(422, "invalid_request")["field"], field, "{body}");
    }
    let everything = json!({"from": "2001-01-01T00:00:00Z"});
    let path_of_count = format!("{path}/count");
    let young = server.as_acme("POST", &path_of_count).json(&everything).await.expect(200);
    assert_eq!(young["complete"], true, "of a young tenant, nothing is gone");
    let future = json!({"from": "2999-01-01T00:00:00Z"});
    let refused = server.as_acme("POST", &path).json(&future).await;
    assert_eq!(refused.expect_problem(422, "invalid_request")["field"], "from");
    server.as_acme("DELETE", "/v1/subscriptions/late").await.expect(204);
    server.as_acme("POST", &path).json(json!({})).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn many_deliveries_are_sent_again_and_one_event_to_anybody() {
    let server = Server::start().await;
    let once = json!({"policy": {"schedule": {"max_attempts": 1}}});
    server.subscribe("https://dead.example/", once).await;
    let other = json!({"name": "other", "filter": {"any_of": [{"types": ["never"]}]}});
    server.subscribe("https://ok.example/", other).await;
    let event = server.publish("1").await;
    server.delivery_in(&event, "dead").await;
    let resend =
        async |body: Value| server.as_acme("POST", "/v1/deliveries/resend").json(&body).await;
    let count = server.as_acme("POST", "/v1/deliveries/resend/count").json(json!({})).await;
    assert_eq!(count.expect(200)["count"], 1);
    let job = finished(&server, &resend(json!({})).await.expect(201)).await;
    assert_eq!(job["done"], 1);
    assert_eq!(got(&server, "dead.example", 2).await, 2);
    let refused = resend(json!({"status": "missed"})).await.expect_problem(422, "invalid_request");
    assert_eq!(refused["field"], "status");

    let deliver = format!("/v1/events/{event}/deliver");
    let to =
        async |to: &str| server.as_acme("POST", &deliver).json(json!({"subscription": to})).await;
    let job = to("other").await.expect(201);
    assert_eq!(
        (&job["state"], &job["done"], &job["kind"]),
        (&json!("done"), &json!(1), &json!("deliver"))
    );
    assert_eq!(got(&server, "ok.example", 1).await, 1, "whatever its filter");
    assert_eq!(to("other").await.expect(201)["done"], 1, "and again, since somebody asks");
    assert_eq!(got(&server, "ok.example", 2).await, 2);
    let refused = to("nobody").await.expect_problem(422, "invalid_request");
    assert_eq!(refused["field"], "subscription");
    let unknown = "/v1/events/evt_01hf7yat00000000000000000z/deliver";
    let unknown = server.as_acme("POST", unknown).json(json!({"subscription": "other"})).await;
    unknown.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_job_keeps_its_pace_and_can_be_stopped() {
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    for _ in 0..20 {
        publish(&server, "a").await;
    }
    server.subscribe("https://ok.example/", json!({"name": "slow"})).await;
    let job =
        server.as_acme("POST", "/v1/subscriptions/slow/replay").json(json!({"per_second": 2}));
    let job = job.await.expect(201);
    assert_eq!((&job["state"], &job["done"]), (&json!("running"), &json!(2)));
    let cancel = format!("/v1/jobs/{}/cancel", job["id"].as_str().unwrap());
    let stopped = server.as_acme("POST", &cancel).await.expect(200);
    assert_eq!(stopped["state"], "cancelled");
    let done = stopped["done"].as_u64().unwrap();
    assert!(done < 20, "{stopped}");
    assert_eq!(server.as_acme("POST", &cancel).await.expect(200), stopped);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(got(&server, "ok.example", 20).await as u64, done, "nothing more is made");
}
