//! Events that are to be delivered later, and events that are kept for a short time.

use std::time::Duration;

use posthorn_domain::{DeliveryState, Span, Timestamp, WaitReason};
use posthorn_engine::{Engine, Error, Publish};
use posthorn_testkit::clock::VirtualClock;
use serde_json::json;

use crate::house::{House, Receivers, TENANT, publish, rest, subscribe, topic};

const HOUR: Duration = Duration::from_secs(3_600);

fn at(payload: &str, when: Timestamp) -> Publish {
    Publish { deliver_at: Some(when), ..publish(payload, None) }
}

async fn send(engine: &Engine, event: Publish) {
    engine.publish(TENANT, event).await.expect("accepted");
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_before_its_time_and_lanes_are_entered_then() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://plain/", json!({})).await;
    subscribe(&engine, "https://ordered/", json!({"order": {"scope": "subscription"}})).await;
    let now = engine.now();
    let after = |seconds| now.plus(Span::from_secs(seconds));
    send(&engine, at("late", after(200))).await;
    send(&engine, at("soon", after(100))).await;
    send(&engine, at("past", now.minus(Span::from_secs(5)))).await;
    send(&engine, publish("now", None)).await;
    rest(5).await;
    for url in ["https://plain/", "https://ordered/"] {
        assert_eq!(house.receivers.bodies(url), ["past", "now"], "nobody waits for the others");
    }
    let rows = house.store.all_deliveries();
    let waits: Vec<_> = rows.into_iter().filter(|row| !row.state.is_terminal()).collect();
    assert_eq!(waits.len(), 4);
    for waiting in engine.waiting(TENANT, &waits).await {
        let waiting = waiting.expect("it waits");
        assert_eq!(waiting.reason, WaitReason::Scheduled);
        assert!([after(100), after(200)].contains(&waiting.until.expect("a time")));
    }
    let refused = engine.retry_delivery(TENANT, waits[0].id).await;
    assert!(matches!(refused, Err(Error::Scheduled { .. })), "{refused:?}");
    rest(300).await;
    for url in ["https://plain/", "https://ordered/"] {
        assert_eq!(house.receivers.bodies(url), ["past", "now", "soon", "late"]);
        let times: Vec<_> = house.receivers.of(url).iter().map(|seen| seen.at).collect();
        assert!(times[2] >= after(100) && times[2] <= after(102), "{times:?}");
        assert!(times[3] >= after(200) && times[3] <= after(202), "{times:?}");
    }
    let attempts = house.store.all_attempts();
    assert!(attempts.iter().all(|attempt| !attempt.manual), "nobody asked for them");
}

#[tokio::test(start_paused = true)]
async fn a_restart_and_a_clock_that_was_ahead_change_nothing() {
    let mut house = House::new();
    let clock = VirtualClock::start();
    house.store = posthorn_conformance::model::ModelStore::new(clock.clone());
    house.receivers = Receivers::new(house.clock.clone());
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    subscribe(&engine, "https://plain/", json!({})).await;
    subscribe(&engine, "https://ordered/", json!({"order": {"scope": "subscription"}})).await;
    let due = engine.now().plus(Span::from_secs(2 * 3_600));
    send(&engine, at("1", due)).await;
    rest(1).await;
    // Ahead, but not so far that its time has come; then back.
    clock.ahead(HOUR);
    rest(10).await;
    clock.ahead(Duration::ZERO);
    rest(60).await;
    assert!(house.receivers.seen.lock().is_empty());
    engine.stop().await;
    drop(engine);
    let engine = house.engine_on(clock.clone(), 2).await;
    rest(3_600).await;
    assert!(house.receivers.seen.lock().is_empty());
    rest(3_600).await;
    assert_eq!(house.receivers.seen.lock().len(), 2);
    let rows = house.store.all_deliveries();
    assert!(rows.iter().all(|row| row.state == DeliveryState::Delivered));
    drop(engine);
}

#[tokio::test(start_paused = true)]
async fn impossible_times_are_refused_and_repeats_are_repeats() {
    let (_house, engine) = House::open().await;
    let now = engine.now();
    let keep = |retention| Publish { retention: Some(retention), ..publish("1", None) };
    for (event, field) in [
        (at("1", now.plus(Span::from_secs(366 * 86_400 + 60))), "deliver_at"),
        (keep(Span::from_secs(59)), "retention"),
        (keep(Span::from_secs(10_000 * 86_400)), "retention"),
    ] {
        let refused = engine.publish(TENANT, event).await;
        assert!(
            matches!(&refused, Err(Error::Event { field: found, .. }) if *found == field),
            "{refused:?}"
        );
    }
    let one = at("1", now.plus(Span::from_secs(5)));
    let prints = [
        publish("1", None).fingerprint(),
        one.fingerprint(),
        at("1", now.plus(Span::from_secs(6))).fingerprint(),
        keep(Span::from_secs(60)).fingerprint(),
        keep(Span::from_secs(61)).fingerprint(),
    ];
    let different: std::collections::BTreeSet<_> = prints.into_iter().collect();
    assert_eq!(different.len(), 5);
    let key = posthorn_domain::IdempotencyKey::new("k").expect("a key");
    let idempotency = Some(posthorn_domain::Idempotency { key, fingerprint: one.fingerprint() });
    let one = Publish { idempotency, ..one };
    let first = engine.publish(TENANT, one.clone()).await.expect("accepted");
    // By now its time is over, and so it would be delivered at once.
    rest(60).await;
    let again = engine.publish(TENANT, one).await.expect("a repeat");
    assert!(again.duplicate && again.id == first.id);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_for_a_short_time_goes_once_it_has_arrived() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let short = Publish { retention: Some(Span::from_secs(120)), ..publish("short", None) };
    send(&engine, short).await;
    send(&engine, publish("long", None)).await;
    rest(60).await;
    assert_eq!(house.store.all_events().len(), 2);
    rest(3 * 3_600).await;
    let left: Vec<_> = house.store.all_events().iter().map(|e| e.payload.clone()).collect();
    assert_eq!(left, ["long"]);
}
