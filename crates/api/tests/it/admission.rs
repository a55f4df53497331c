//! Who is let in when there is too much of everything, and what the others are told.

use std::sync::Arc;
use std::time::Duration;

use posthorn_api::{LimitOptions, Options};
use posthorn_domain::{EventType, TopicName};
use posthorn_engine::{AdmissionOptions, Publish};
use posthorn_listener::{Failures, ServeLimits};
use posthorn_testkit::caller::{Call, Reply};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Problem as _, Server, connect};

async fn limited(admission: AdmissionOptions, limits: LimitOptions) -> Server {
    started(admission, Options { limits, ..Options::default() }).await
}

async fn started(admission: AdmissionOptions, who: Options) -> Server {
    let options = posthorn_engine::Options { admission, ..posthorn_engine::Options::default() };
    Server::start_limited(ServeLimits::default(), options, who).await
}

#[track_caller]
fn expect_wait(reply: &Reply, status: u16, code: &str) -> u64 {
    reply.expect_problem(status, code);
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    wait
}

const EVENT: &str = r#"{"topic":"orders","type":"order.created","payload":1}"#;

fn publish(server: &Server) -> Call {
    server.as_acme("POST", "/v1/events").text(EVENT)
}

#[tokio::test]
async fn a_key_with_a_rate_is_held_to_it_and_no_other_is() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let body = json!({"tenant": "acme", "scopes": ["publish", "read"], "rate_limit": 5});
    let made = server.as_operator("POST", "/v1/keys").json(&body).await.expect(201);
    assert_eq!(made["rate_limit"], 5);
    let key = made["key"].as_str().unwrap();
    for _ in 0..5 {
        server.ask("POST", "/v1/events").key(key).text(EVENT).await.expect(202);
    }
    let mut refused = 0;
    for _ in 0..3 {
        let reply = server.ask("POST", "/v1/events").key(key).text(EVENT).await;
        if reply.status == 429 {
            expect_wait(&reply, 429, "rate_limited");
            refused += 1;
        }
    }
    assert!(refused > 0, "five a second, and eight came");
    publish(&server).await.expect(202);
    let zero = json!({"tenant": "acme", "scopes": ["read"], "rate_limit": 0});
    let reply = server.as_operator("POST", "/v1/keys").json(&zero).await;
    assert_eq!(reply.expect_problem(422, "invalid_request")["field"], "rate_limit");
}

#[tokio::test]
async fn the_events_of_a_batch_count_one_by_one() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let body = json!({"tenant": "acme", "scopes": ["publish"], "rate_limit": 10});
    let made = server.as_operator("POST", "/v1/keys").json(&body).await.expect(201);
    let key = made["key"].as_str().unwrap();
    let event: serde_json::Value = serde_json::from_str(EVENT).unwrap();
    let batch = json!({"events": vec![event; 100]});
    server.ask("POST", "/v1/events/batch").key(key).json(&batch).await.expect(200);
    let reply = server.ask("POST", "/v1/events").key(key).text(EVENT).await;
    let wait = expect_wait(&reply, 429, "rate_limited");
    assert!((5..=10).contains(&wait), "a hundred at ten a second, not {wait} s");
}

#[tokio::test]
async fn a_tenant_over_its_quota_waits_until_something_ends() {
    let admission = AdmissionOptions {
        pending_per_tenant: 3,
        pending_count_interval: Duration::from_millis(50),
        ..AdmissionOptions::default()
    };
    let server = limited(admission, LimitOptions::default()).await;
    // Paused: nothing of it ends.
    let made = server.subscribe("https://ok.example/", json!({})).await;
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    server.as_acme("POST", &format!("{path}/pause")).await.expect(200);
    for _ in 0..3 {
        publish(&server).await.expect(202);
    }
    let reply = publish(&server).await;
    expect_wait(&reply, 429, "quota_exceeded");
    // Others, and everything else of this one, go on.
    server.as_acme("GET", "/v1/deliveries").await.expect(200);
    let other = |method: &str, path: &str| server.ask(method, path).key(&server.keys.other);
    other("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    other("POST", "/v1/events").text(EVENT).await.expect(202);
    server.as_acme("POST", &format!("{path}/resume")).await.expect(200);
    for _ in 0..500 {
        if publish(&server).await.status == 202 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never let in again");
}

#[tokio::test]
async fn what_other_nodes_and_operators_did_is_counted_too() {
    let admission = AdmissionOptions {
        pending_per_tenant: 2,
        pending_count_interval: Duration::from_millis(50),
        ..AdmissionOptions::default()
    };
    let server = limited(admission, LimitOptions::default()).await;
    let made = server.subscribe("https://ok.example/", json!({})).await;
    let path = format!("/v1/subscriptions/{}", made["id"].as_str().unwrap());
    server.as_acme("POST", &format!("{path}/pause")).await.expect(200);
    for _ in 0..2 {
        publish(&server).await.expect(202);
    }
    expect_wait(&publish(&server).await, 429, "quota_exceeded");
    // No attempt ends them: the count of the store brings it in.
    let list = server.as_acme("GET", "/v1/deliveries").await.expect(200);
    for item in list["items"].as_array().unwrap() {
        let cancel = format!("/v1/deliveries/{}/cancel", item["id"].as_str().unwrap());
        server.as_acme("POST", &cancel).await.expect(200);
    }
    for _ in 0..500 {
        if publish(&server).await.status == 202 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never let in again");
}

#[tokio::test]
async fn a_full_disk_stops_publishes_and_nothing_else() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let ready = server.ask("GET", "/readyz").await.expect(200);
    assert_eq!(ready, json!({"status": "ready"}));
    server.engine.admission().set_disk_full(true);
    expect_wait(&publish(&server).await, 503, "disk_full");
    let batch = server.as_acme("POST", "/v1/events/batch").text(r#"{"events":[]}"#).await;
    expect_wait(&batch, 503, "disk_full");
    server.as_acme("GET", "/v1/events").await.expect(200);
    server.ask("GET", "/healthz").await.expect(200);
    let ready = server.ask("GET", "/readyz").await.expect(200);
    assert_eq!(ready["refusing_publishes"], "disk_full");
    server.engine.admission().set_disk_full(false);
    publish(&server).await.expect(202);
}

#[tokio::test]
async fn wrong_keys_are_told_to_stop_and_the_right_one_is_served_all_the_same() {
    let who = Options { failures: Arc::new(Failures::new(10)), ..Options::default() };
    let server = started(AdmissionOptions::default(), who).await;
    for _ in 0..10 {
        server.ask("GET", "/v1/topics").key("ph_wrong").await.expect_problem(401, "unauthorized");
    }
    let reply = server.ask("GET", "/v1/topics").key("ph_wrong").await;
    expect_wait(&reply, 429, "too_many_failures");
    expect_wait(&server.ask("GET", "/v1/topics").await, 429, "too_many_failures");
    server.as_acme("GET", "/v1/topics").await.expect(200);
    server.ask("GET", "/healthz").await.expect(200);
}

#[tokio::test]
async fn tests_and_redrives_are_limited_by_tenant() {
    let who = LimitOptions { redrives_per_minute: 1, ..LimitOptions::default() };
    let admission = AdmissionOptions { tests_per_minute: 2, ..AdmissionOptions::default() };
    let server = limited(admission, who).await;
    let made = server.subscribe("https://ok.example/", json!({})).await;
    let test = format!("/v1/subscriptions/{}/test", made["id"].as_str().unwrap());
    for _ in 0..2 {
        server.as_acme("POST", &test).await.expect(200);
    }
    expect_wait(&server.as_acme("POST", &test).await, 429, "rate_limited");
    // What is not there is said first, and costs nothing.
    let unknown = "/v1/subscriptions/sub_01hf7yat00000000000000000z/test";
    server.as_acme("POST", unknown).await.expect_problem(404, "not_found");
    let redrive = || server.as_acme("POST", "/v1/redrives").json(json!({}));
    redrive().await.expect(201);
    expect_wait(&redrive().await, 429, "rate_limited");
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let limits = ServeLimits { connections_per_address: 2, ..ServeLimits::default() };
    let server = Server::start_with(limits).await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: api.test\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(server.address).await;
        stream.write_all(request).await.unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        open.push(stream);
    }
    let mut third = connect(server.address).await;
    drop(third.write_all(request).await);
    let mut byte = [0];
    assert!(!matches!(third.read(&mut byte).await, Ok(1)), "it was served beyond the limit");
    drop(open);
    for _ in 0..500 {
        let mut stream = connect(server.address).await;
        drop(stream.write_all(request).await);
        if matches!(stream.read(&mut byte).await, Ok(1)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there was never room again");
}

#[tokio::test]
async fn uses_of_keys_are_shown_and_written_down_apart_from_the_catalog() {
    let server = Server::start().await;
    let list = async || server.as_operator("GET", "/v1/keys").await.expect(200)["items"].clone();
    let used = |items: &serde_json::Value| {
        let items = items.as_array().unwrap().iter();
        items.filter(|key| key.get("last_used_at").is_some()).count()
    };
    assert_eq!(used(&list().await), 1, "only the one that asks");
    let version = server.engine.catalog().version();
    server.as_acme("GET", "/v1/topics").await.expect(200);
    server.ask("GET", "/v1/topics").key(&server.keys.revoked).await.expect(401);
    assert_eq!(used(&list().await), 2);
    assert_eq!(server.engine.catalog().version(), version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_can_be_committed_in_time_is_refused_at_once_and_health_answers() {
    // Every commit is too late for this one.
    let admission = AdmissionOptions {
        commit_delay: Duration::from_nanos(1),
        commit_interval: Duration::from_nanos(1),
        ..AdmissionOptions::default()
    };
    let who = LimitOptions { refusal_delay: Duration::from_millis(20), ..LimitOptions::default() };
    let server = limited(admission, who).await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let (engine, tenant) = (server.engine.clone(), server.acme);
    let flood = tokio::spawn(async move {
        let event = Publish {
            topic: TopicName::new("orders").unwrap(),
            event_type: EventType::new("a").unwrap(),
            attributes: std::collections::BTreeMap::new(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: "1".into(),
            idempotency: None,
            deliver_at: None,
            publisher_id: None,
            retention: None,
            trace: None,
        };
        // Until it is aborted: from inside, nothing is refused.
        loop {
            drop(engine.publish_batch(tenant, vec![event.clone(); 5_000]).await);
        }
    });
    let mut refused = None;
    for _ in 0..2_000 {
        let reply = publish(&server).await;
        if reply.status != 202 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("somebody is refused");
    assert_eq!(expect_wait(&refused, 503, "overloaded"), 1);
    server.ask("GET", "/healthz").await.expect(200);
    server.ask("GET", "/readyz").await.expect(200);
    server.ask("GET", "/metrics").await;
    server.as_acme("GET", "/v1/topics").await.expect(200);
    flood.abort();
    for _ in 0..3_000 {
        if publish(&server).await.status == 202 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never let in again");
}

#[tokio::test]
async fn a_refusal_before_a_large_body_was_read_ends_the_connection() {
    let server = Server::start().await;
    let large = format!("{{\"payload\": \"{}\"}}", "x".repeat(64 << 10));
    let asked = server.ask("POST", "/v1/events").key("ph_wrong").header("connection", "keep-alive");
    let reply = asked.text(&large).await;
    assert_eq!((reply.status, reply.header("connection")), (401, Some("close")));
}
