//! Events that are matched with costly filters, while the catalog changes and others wait.
//!
//! Time is virtual: a tenant that has used up its share of the time for matching waits for seconds on this
//! clock, and what does not wait for it takes none.

use std::time::Duration;

use posthorn_domain::{Clock, Labels, TenantId, Topic, TopicName};
use posthorn_engine::{Engine, Error, NewSubscription, Options, Publish, Quotas};
use posthorn_store::{CatalogChange, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::house::{House, TENANT, publish, rest, subscribe, topic};

/// Matching one large event takes the tenant's share of many seconds; the next one waits longer than this.
const DEBT: Duration = Duration::from_secs(5);
/// What needs no waiting takes no time on this clock, but for a pause here and there.
const AT_ONCE: Duration = Duration::from_secs(1);

fn options() -> Options {
    let quotas = Quotas {
        match_cost_per_event: 5 << 20,
        match_cost_per_second: 128 << 10,
        ..Quotas::default()
    };
    Options { quotas, accept_batch: 4, ..Options::default() }
}

fn named(topic: &str) -> TopicName {
    TopicName::new(topic).expect("a name")
}

async fn put_topic(engine: &Engine, tenant: TenantId, name: &str) {
    let name = named(name);
    engine
        .put_topic(tenant, name, String::new(), vec![], Labels::default())
        .await
        .expect("a topic");
}

/// A topic made by another node, so that this one finds out while it commits.
async fn topic_of_another_node(house: &House, tenant: TenantId, name: &str) {
    let new = Topic {
        tenant,
        name: named(name),
        description: String::new(),
        attributes: vec![],
        labels: Labels::default(),
        created_at: house.clock.now(),
    };
    house.store.change_catalog(CatalogChange::PutTopic(new)).await.expect("a topic");
}

/// A subscription that looks through the whole text of events, and wants none of them.
async fn search(engine: &Engine, tenant: TenantId, nth: usize) {
    let test = |n: usize| {
        let value = format!("abab{nth}.{n}");
        json!({"test": {"path": "/text", "op": "contains", "value": value}})
    };
    let tests: Vec<Value> = (0..6).map(test).collect();
    let filter = json!({"any_of": [{"payload": {"any": tests}}]});
    let new = NewSubscription {
        destination: format!("https://{nth}/").into(),
        filter: Some(serde_json::from_value(filter).expect("a filter")),
        ..NewSubscription::default()
    };
    engine.create_subscription(tenant, new).await.expect("a subscription");
}

/// An event that is costly to match.
fn large() -> Publish {
    publish(&json!({"text": "ab".repeat(60_000)}).to_string(), None)
}

/// A tenant whose share of the time is used up.
async fn spend(engine: &Engine, tenant: TenantId) {
    put_topic(engine, tenant, "orders").await;
    for nth in 0..2 {
        search(engine, tenant, nth).await;
    }
    engine.publish(tenant, large()).await.expect("accepted");
}

#[tokio::test(start_paused = true)]
async fn what_must_be_matched_again_for_one_tenant_holds_no_other_tenants_line() {
    let house = House::new();
    let engine = house.engine_with(1, options()).await;
    topic(&engine).await;
    let greedy = engine.create_tenant("greedy".to_owned()).await.expect("a tenant").id;
    spend(&engine, greedy).await;
    topic_of_another_node(&house, greedy, "new").await;

    let began = Instant::now();
    let stale = async {
        let event = Publish { topic: named("new"), ..large() };
        engine.publish(greedy, event).await.expect("accepted");
        began.elapsed()
    };
    // More than a commit takes, so that its rest waits in line.
    let batch = (0..10).map(|n| publish(&n.to_string(), None)).collect();
    let others = async {
        let answers = engine.publish_batch(TENANT, batch).await.expect("answers");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        began.elapsed()
    };
    let (stale, others) = tokio::join!(stale, others);
    assert!(stale >= DEBT, "the test shows nothing: {stale:?}");
    assert!(others < AT_ONCE, "waited {others:?} for another tenant");
}

#[tokio::test(start_paused = true)]
async fn events_of_one_call_stay_in_order_when_the_catalog_changes_between_them() {
    let house = House::new();
    let engine = house.engine_with(1, options()).await;
    spend(&engine, TENANT).await;
    subscribe(&engine, "https://ordered/", json!({"order": {"scope": "subscription"}})).await;

    // The first is matched with the catalog as it is now, seconds before it is the second's turn.
    let began = Instant::now();
    let call = async {
        let batch = vec![large(), publish("small", None)];
        let answers = engine.publish_batch(TENANT, batch).await.expect("answers");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        began.elapsed()
    };
    let change = async {
        rest(1).await;
        subscribe(&engine, "https://late/", json!({})).await;
    };
    let (took, ()) = tokio::join!(call, change);
    assert!(took >= DEBT, "the test shows nothing: {took:?}");
    rest(60).await;
    let seen = house.receivers.bodies("https://ordered/");
    let small: Vec<bool> = seen.iter().map(|body| body == "small").collect();
    assert_eq!(small, [false, true], "in the order of the call");
    assert_eq!(house.receivers.of("https://late/").len(), 2, "both are matched with it");
}

#[tokio::test(start_paused = true)]
async fn events_of_one_call_stay_in_order_when_the_first_was_of_an_unknown_topic() {
    let house = House::new();
    let engine = house.engine_with(1, options()).await;
    spend(&engine, TENANT).await;
    for nth in 2..10 {
        search(&engine, TENANT, nth).await;
    }
    subscribe(&engine, "https://ordered/", json!({"order": {"scope": "subscription"}})).await;
    topic_of_another_node(&house, TENANT, "new").await;

    // While the second waits to be matched, and refused, this node learns of the first one's topic.
    let first = Publish { topic: named("new"), ..publish("first", None) };
    let batch = vec![first, large(), publish("third", None)];
    let began = Instant::now();
    let answers = engine.publish_batch(TENANT, batch).await.expect("answers");
    assert!(matches!(answers[..], [Ok(_), Err(_), Ok(_)]), "{answers:?}");
    assert!(began.elapsed() >= DEBT, "the test shows nothing: {:?}", began.elapsed());
    rest(60).await;
    assert_eq!(house.receivers.bodies("https://ordered/"), ["first", "third"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_costs_too_much_is_refused_at_once() {
    let house = House::new();
    let engine = house.engine_with(1, options()).await;
    topic(&engine).await;
    for nth in 0..10 {
        search(&engine, TENANT, nth).await;
    }
    let began = Instant::now();
    let refused = engine.publish(TENANT, large()).await.expect_err("costs too much");
    assert!(matches!(refused, Error::MatchingTooCostly { .. }), "{refused}");
    assert!(began.elapsed() < AT_ONCE, "matched twice: {:?}", began.elapsed());
}
