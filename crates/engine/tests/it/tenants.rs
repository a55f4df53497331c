//! Tenants beside each other: what one does must not hold another up.

use std::time::Duration;

use posthorn_domain::{Clock, Labels, TenantId, TopicName};
use posthorn_engine::{Engine, NewSubscription, Options};
use serde_json::{Value, json};

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

const SLOTS: usize = 64;
const HANGS: Duration = Duration::from_secs(600);

async fn hostile_tenant(engine: &Engine) -> TenantId {
    let tenant = engine.create_tenant("hostile".to_owned()).await.expect("a tenant").id;
    let name = TopicName::new("orders").expect("a name");
    engine
        .put_topic(tenant, name, String::new(), vec![], Labels::default())
        .await
        .expect("a topic");
    tenant
}

async fn subscribe_for(engine: &Engine, tenant: TenantId, url: &str, overrides: Value) {
    let new = NewSubscription { destination: url.into(), overrides, ..NewSubscription::default() };
    engine.create_subscription(tenant, new).await.expect("a subscription");
}

/// How late the one receiver of the other tenant gets its events, one each second.
async fn lateness(house: &House, engine: &Engine) -> i64 {
    let began = house.clock.now();
    for second in 0..60 {
        engine.publish(TENANT, publish(&second.to_string(), None)).await.expect("accepted");
        rest(1).await;
    }
    let seen = house.receivers.of("https://quick/");
    assert_eq!(seen.len(), 60);
    let late = |at: i64, second: i64| at - began.as_millis() - second * 1_000;
    seen.iter().zip(0..).map(|(s, n)| late(s.at.as_millis(), n)).max().expect("some")
}

fn limits() -> Value {
    json!({
        "limits": {"concurrency": 1_000, "total": "10m", "response": "10m"},
        "lease": {"time": "15m"},
    })
}

#[tokio::test(start_paused = true)]
async fn receivers_that_earn_trust_and_then_hang_hold_no_other_tenant_up() {
    let house = House::new();
    let engine = house.engine_with(9, Options { slots: SLOTS, ..Options::default() }).await;
    topic(&engine).await;
    subscribe(&engine, "https://quick/", json!({})).await;
    let hostile = hostile_tenant(&engine).await;
    for index in 0..4 {
        let url = format!("https://hostile-{index}/");
        // They hang one after the other, so that each finds what the others have left.
        let trusted = 200 + 100 * index;
        house.receivers.script(&url, move |nth, _| {
            (if nth < trusted { Duration::from_millis(5) } else { HANGS }, answered(200))
        });
        subscribe_for(&engine, hostile, &url, limits()).await;
    }
    for n in 0..1_000 {
        engine.publish(hostile, publish(&n.to_string(), None)).await.expect("accepted");
    }
    let late = lateness(&house, &engine).await;
    assert!(late <= 100, "{late} ms late");
}

#[tokio::test(start_paused = true)]
async fn many_new_receivers_that_hang_hold_no_other_tenant_up() {
    let house = House::new();
    let engine = house.engine_with(9, Options { slots: SLOTS, ..Options::default() }).await;
    topic(&engine).await;
    subscribe(&engine, "https://quick/", json!({})).await;
    let hostile = hostile_tenant(&engine).await;
    for index in 0..3 * SLOTS {
        let url = format!("https://hostile-{index}/");
        house.receivers.script(&url, |_, _| (HANGS, answered(200)));
        subscribe_for(&engine, hostile, &url, limits()).await;
    }
    for n in 0..8 {
        engine.publish(hostile, publish(&n.to_string(), None)).await.expect("accepted");
    }
    let late = lateness(&house, &engine).await;
    assert!(late <= 100, "{late} ms late");
    let held = engine.inspect().await.in_flight;
    assert!((SLOTS..2 * SLOTS).contains(&held), "{held} under way");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_held_back_gets_everything_delivered_in_the_end() {
    let house = House::new();
    let engine = house.engine_with(9, Options { slots: 8, ..Options::default() }).await;
    topic(&engine).await;
    for index in 0..20 {
        let url = format!("https://slow-{index}/");
        house.receivers.script(&url, |_, _| (Duration::from_secs(5), answered(200)));
        subscribe(&engine, &url, json!({})).await;
    }
    for n in 0..10 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(600).await;
    assert_eq!(house.counts().await.delivered, 200);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_keeps_us_waiting_is_remembered_for_a_while_and_then_forgotten() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://slow/", |_, _| (Duration::from_secs(15), answered(200)));
    subscribe(&engine, "https://slow/", json!({})).await;
    subscribe(&engine, "https://quick/", json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 2);
    assert_eq!(engine.inspect().await.queues, 1, "the slow one");
    rest(300).await;
    assert_eq!(engine.inspect().await.queues, 0);
}
