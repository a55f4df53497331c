//! What happened to deliveries, as the engine tells it.

use std::time::Duration;

use posthorn_domain::timeline::{Certainty, What};
use posthorn_domain::{
    Answer, AttemptOutcome, DeadReason, DeliveryId, DeliveryState, Filter, SubscriptionId,
    WaitReason,
};
use posthorn_engine::{Engine, Error, Options, SubscriptionChange};
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
            What::Made => "made".to_owned(),
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
    let dead = [&begun[..], &["schedule 60s", "attempt 2", &end]].concat();
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
async fn a_hold_is_seen_while_it_lasts_and_afterwards() {
    let (house, engine) = House::open().await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    engine.stop().await;
    let engine = house.engine_with(2, Options { hold: true, ..Options::default() }).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(30).await;
    let id = only(&house);
    assert_eq!(told(&engine, id).await, ["accepted", "matched", "hold"]);
    let standing = engine.subscription_state(TENANT, view.subscription.id).await;
    assert_eq!(standing.waiting.map(|waiting| waiting.reason), Some(WaitReason::Hold));
    assert!(engine.resume().await.expect("resumes"));
    rest(5).await;
    let expected = ["accepted", "matched", "hold 30s", "attempt 1", "Delivered"];
    assert_eq!(told(&engine, id).await, expected);
    // What comes afterwards has nothing to do with it.
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(5).await;
    let later = house.store.all_deliveries().into_iter().max_by_key(|delivery| delivery.seq);
    let later = later.expect("two").id;
    assert_eq!(told(&engine, later).await, ["accepted", "matched", "attempt 1", "Delivered"]);
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

/// The waits of the last delivery, when there are so many to one receiver that takes `slow`.
async fn waits_of_the_last(many: usize, slow: Duration, policy: serde_json::Value) -> Vec<String> {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", move |_, _| (slow, answered(200)));
    subscribe(&engine, "https://a/", policy).await;
    for _ in 0..many {
        engine.publish(TENANT, publish("1", Some("key"))).await.expect("accepted");
    }
    rest(120).await;
    let last = house.store.all_deliveries().into_iter().max_by_key(|delivery| delivery.seq);
    let told = told(&engine, last.expect("there are some").id).await;
    let around = |step: &String| {
        step.starts_with(|letter: char| letter.is_uppercase())
            || ["accepted", "matched"].contains(&step.as_str())
    };
    told.into_iter().filter(|step| !around(step)).collect()
}

/// What held an attempt back is known afterwards.
#[tokio::test(start_paused = true)]
async fn waits_that_are_over_have_their_reasons() {
    let (quick, slow) = (Duration::ZERO, Duration::from_secs(10));
    let rate = json!({"limits": {"rate": 1}});
    assert_eq!(waits_of_the_last(4, quick, rate).await, ["rate 3s", "attempt 1"]);
    let lane = json!({"order": {"scope": "subscription"}});
    assert_eq!(waits_of_the_last(3, slow, lane).await, ["lane 20s", "attempt 1"]);
    let few = json!({"limits": {"concurrency": 1}});
    assert_eq!(waits_of_the_last(2, slow, few).await, ["concurrency 10s", "attempt 1"]);
    let spaced = json!({"order": {"scope": "key"}, "spacing": "5s"});
    let waits = waits_of_the_last(2, quick, spaced).await;
    // A node that has just taken over does not know when the last attempt ended, so the first one rests too.
    assert_eq!(waits, ["lane 5s", "spacing 5s", "attempt 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_receiver_asked_for_is_told_of_those_behind() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |call, _| {
        let busy = Answer {
            status: 503,
            retry_after: Some("20".to_owned()),
            content_type: None,
            body: bytes::Bytes::new(),
        };
        let answer = if call == 0 { AttemptOutcome::Answered(busy) } else { answered(200) };
        (Duration::ZERO, answer)
    });
    subscribe(&engine, "https://a/", every("60s", 5)).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(120).await;
    let last = house.store.all_deliveries().into_iter().max_by_key(|delivery| delivery.seq);
    let told = told(&engine, last.expect("there are two").id).await;
    assert_eq!(told[2..], ["retry_after 19s", "attempt 1", "Delivered"]);
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
