//! Operational events through the API: how one subscribes to them, and that nobody else publishes them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

const FILTER: &str = r#"{"any_of": [{"topics": ["posthorn.operational"]}]}"#;

fn filter() -> Value {
    serde_json::from_str(FILTER).expect("JSON")
}

/// What a host was told so far.
fn told(server: &Server, host: &str) -> Vec<Value> {
    let parse = |body: &[u8]| serde_json::from_slice(body).expect("JSON");
    server.transport.sent_to(host).iter().map(|sent| parse(&sent.body)).collect()
}

/// Waits until a host was told something of this type, and returns it.
async fn hears(server: &Server, host: &str, kind: &str) -> Value {
    for _ in 0..1_000 {
        if let Some(found) = told(server, host).into_iter().find(|told| told["type"] == kind) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{host} never heard of {kind}: {:?}", told(server, host));
}

/// Somebody of a tenant who wants all of them.
async fn listen(server: &Server, tenant: &str, url: &str) -> Value {
    let body = json!({"url": url, "filter": filter()});
    let call = server.as_operator("POST", "/v1/subscriptions").header("posthorn-tenant", tenant);
    let made = call.json(&body).await.expect(201);
    assert!(made.get("warnings").is_none_or(|all| all == &json!([])), "{made}");
    made
}

fn policy(max: u32) -> Value {
    let backoff = json!({"fixed": {"wait": "100ms"}});
    json!({"schedule": {"backoff": backoff, "jitter": "none", "max_attempts": max}})
}

#[tokio::test]
async fn a_webhook_gets_what_happens_in_its_tenant() {
    let server = Server::start().await;
    listen(&server, "acme", "https://ear.example/").await;
    listen(&server, "other", "https://stranger.example/").await;
    listen(&server, "system", "https://operator.example/").await;

    let flaky = server.subscribe("https://flaky.example/", json!({"policy": policy(9)})).await;
    let created = hears(&server, "ear.example", "subscription.created").await;
    assert_eq!(created["subscription"], flaky["id"]);
    assert_eq!(created["origin"], "https://flaky.example");
    let event = server.publish("1").await;
    let failing = hears(&server, "ear.example", "delivery.failing").await;
    assert_eq!((&failing["event"], &failing["attempts"]), (&json!(event), &json!(4)));
    let recovered = hears(&server, "ear.example", "delivery.recovered").await;
    assert_eq!(recovered["delivery"], failing["delivery"]);
    let path = format!("/v1/subscriptions/{}", flaky["id"].as_str().unwrap());
    server.as_acme("PATCH", &path).json(json!({"description": "new"})).await.expect(200);
    let updated = hears(&server, "ear.example", "subscription.updated").await;
    assert_eq!(updated["description"], "new");
    server.as_acme("DELETE", &path).await.expect(204);
    hears(&server, "ear.example", "subscription.deleted").await;

    let mut dies = policy(9);
    dies["failing"] = json!({"disable_after": "1s"});
    dies["on_exhausted"] = json!("disable_subscription");
    let dead = server.subscribe("https://dead.example/", json!({"policy": dies})).await;
    let event = server.publish("2").await;
    let failing = hears(&server, "ear.example", "subscription.failing").await;
    assert_eq!(failing["subscription"], dead["id"]);
    let died = hears(&server, "ear.example", "delivery.dead").await;
    assert_eq!((&died["event"], &died["reason"]), (&json!(event), &json!("exhausted")));
    hears(&server, "ear.example", "subscription.disabled").await;
    let path = format!("/v1/subscriptions/{}", dead["id"].as_str().unwrap());
    server.as_acme("POST", &format!("{path}/resume")).await.expect(200);
    hears(&server, "ear.example", "subscription.recovered").await;
    let redrive = server.as_acme("POST", "/v1/redrives").json(json!({})).await.expect(201);
    let finished = hears(&server, "ear.example", "job.finished").await;
    assert_eq!((&finished["job"], &finished["kind"]), (&redrive["id"], &json!("redrive")));

    hears(&server, "operator.example", "job.finished").await;
    assert_eq!(told(&server, "stranger.example"), [] as [Value; 0], "it is not its affair");
    // They are ordinary events: listed, explained, and filtered by their attributes.
    let list = server.as_acme("GET", "/v1/events?topic=posthorn.operational&type=delivery.dead");
    let list = list.await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let id = list["items"][0]["id"].as_str().unwrap();
    let one = server.as_acme("GET", &format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(one["attributes"]["subscription"], dead["id"]);
    let foreign = server.ask("GET", &format!("/v1/events/{id}")).key(&server.keys.other);
    foreign.await.expect_problem(404, "not_found");
    let tenant = server.acme.to_string();
    let theirs = format!("/v1/events?topic=posthorn.operational&attribute=tenant={tenant}");
    let theirs = server.as_operator("GET", &theirs).header("posthorn-tenant", "system");
    assert!(!theirs.await.expect(200)["items"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_topic_and_the_tenant_are_reserved() {
    let server = Server::start().await;
    let event = json!({"topic": "posthorn.operational", "type": "delivery.dead", "payload": {}});
    let one = server.as_acme("POST", "/v1/events").json(&event).await;
    assert_eq!(one.expect_problem(422, "topic_reserved")["field"], "topic");
    let batch = server.as_acme("POST", "/v1/events/batch").json(json!({"events": [event]})).await;
    assert!(batch.body.contains("topic_reserved"), "{}", batch.body);
    let cloud = json!({"specversion": "1.0", "id": "1", "source": "/me", "type": "delivery.dead",
        "topic": "posthorn.operational", "data": {}});
    let sent = server.as_acme("POST", "/v1/events");
    let sent = sent.header("content-type", "application/cloudevents+json").raw(cloud.to_string());
    sent.await.expect_problem(422, "topic_reserved");
    let topic = "/v1/topics/posthorn.operational";
    server.as_acme("PUT", topic).json(json!({})).await.expect_problem(422, "topic_reserved");
    server.as_acme("DELETE", topic).await.expect_problem(422, "topic_reserved");
    let made = server.as_operator("POST", "/v1/tenants").json(json!({"name": "system"})).await;
    made.expect_problem(422, "tenant_reserved");
    let event = json!({"topic": "orders", "type": "order.created", "payload": {}});
    let system = server.as_operator("POST", "/v1/events").header("posthorn-tenant", "system");
    system.json(&event).await.expect_problem(422, "tenant_reserved");
}
