//! What happened to deliveries, as the engine tells it.

use std::time::Duration;

use posthorn_domain::timeline::{Certainty, What};
use posthorn_domain::{DeadReason, DeliveryId, DeliveryState, Filter, SubscriptionId, WaitReason};
use posthorn_engine::{Engine, Error, SubscriptionChange};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe};

/// The steps of a delivery in words, with their lengths in seconds.
async fn told(engine: &Engine, id: DeliveryId) -> Vec<String> {
    let timeline = engine.timeline(TENANT, id).await.expect("it is there");
    let words = timeline.steps().into_iter().map(|step| {
        let long = step.until.map(|until| until.since(step.at).as_millis() / 1_000);
        let long = long.map(|long| format!(" {long}s")).unwrap_or_default();
        match step.what {
            What::Accepted => "accepted".to_owned(),
            What::Matched => "matched".to_owned(),
            What::Retried => "retried".to_owned(),
            What::UnderWay => "under way".to_owned(),
            What::Expunged => "expunged".to_owned(),
            What::Attempted(attempt) => format!("attempt {}", attempt.number),
            What::Ended(state) => format!("{state:?}"),
            What::Waited(reason, Certainty::Known) => format!("{}{long}", reason.as_str()),
            What::Waited(reason, _) => format!("{}?{long}", reason.as_str()),
        }
    });
    words.collect()
}

fn every(wait: &str, max: u32) -> serde_json::Value {
    json!({"schedule": {"backoff": {"fixed": {"wait": wait}}, "jitter": "none",
        "max_attempts": max}})
}

fn only(house: &House) -> DeliveryId {
    house.store.all_deliveries()[0].id
}

#[tokio::test(start_paused = true)]
async fn attempts_waits_and_the_end_follow_each_other() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    subscribe(&engine, "https://a/", every("60s", 2)).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(10).await;
    let id = only(&house);
    let begun = ["accepted", "matched", "attempt 1"];
    assert_eq!(told(&engine, id).await, [&begun[..], &["schedule 60s"]].concat());
    rest(120).await;
    let end = format!("{:?}", DeliveryState::Dead(DeadReason::Exhausted));
    let dead = [&begun[..], &["schedule? 60s", "attempt 2", &end]].concat();
    assert_eq!(told(&engine, id).await, dead);
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(200)));
    engine.retry_delivery(TENANT, id).await.expect("retried");
    rest(5).await;
    let steps = told(&engine, id).await;
    let again = ["retried", "attempt 3", "Delivered"];
    assert_eq!(steps[steps.len() - 3..], again, "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_seen_while_it_lasts_and_afterwards() {
    let (house, engine) = House::open().await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    let subscription: SubscriptionId = view.subscription.id;
    engine.pause_subscription(TENANT, subscription).await.expect("paused");
    rest(5).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(30).await;
    let id = only(&house);
    assert_eq!(told(&engine, id).await, ["accepted", "matched", "paused"]);
    engine.resume_subscription(TENANT, subscription).await.expect("resumed");
    rest(5).await;
    let expected = ["accepted", "matched", "paused 30s", "attempt 1", "Delivered"];
    assert_eq!(told(&engine, id).await, expected);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_parked_waits_for_its_lane_and_under_way_is_said() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(8), answered(500)));
    let mut policy = every("1h", 5);
    policy["order"] = json!({"scope": "subscription"});
    subscribe(&engine, "https://a/", policy).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(4).await;
    let mut all = house.store.all_deliveries();
    all.sort_by_key(|delivery| delivery.seq);
    assert_eq!(told(&engine, all[0].id).await, ["accepted", "matched", "under way"]);
    assert_eq!(told(&engine, all[1].id).await, ["accepted", "matched", WaitReason::Lane.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn the_group_that_matches_now_is_named_as_long_as_one_does() {
    let (house, engine) = House::open().await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let id = only(&house);
    let change = async |filter: serde_json::Value| {
        let filter: Filter = serde_json::from_value(filter).expect("a filter");
        let change = SubscriptionChange { filter: Some(filter), ..SubscriptionChange::default() };
        engine.update_subscription(TENANT, view.subscription.id, change).await.expect("changed");
        engine.timeline(TENANT, id).await.expect("it is there").group
    };
    assert_eq!(engine.timeline(TENANT, id).await.expect("it is there").group, Some(0));
    let second = json!({"any_of": [{"types": ["other.*"]}, {"types": ["order.*"]}]});
    assert_eq!(change(second).await, Some(1));
    assert_eq!(change(json!({"any_of": [{"types": ["other.*"]}]})).await, None);
    engine.delete_subscription(TENANT, view.subscription.id).await.expect("deleted");
    assert_eq!(engine.timeline(TENANT, id).await.expect("it is there").group, None);
    let nobody = DeliveryId::new(engine.now(), 1);
    let missing = engine.timeline(TENANT, nobody).await;
    assert!(matches!(missing, Err(Error::NotFound("delivery"))));
}
