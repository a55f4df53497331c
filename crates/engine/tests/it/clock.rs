//! The wall clock is set while everything runs: nothing waits longer than its schedule says.

use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::model::ModelStore;
use posthorn_domain::WaitReason;
use posthorn_engine::Engine;
use posthorn_testkit::clock::VirtualClock;
use serde_json::json;

use crate::house::{House, Receivers, TENANT, answered, publish, rest, subscribe, topic};

const DAY: Duration = Duration::from_secs(86_400);

fn house() -> (House, Arc<VirtualClock>) {
    let mut house = House::new();
    let clock = VirtualClock::start();
    house.store = ModelStore::new(clock.clone());
    // What receivers see is timed by the clock that nobody sets.
    house.receivers = Receivers::new(house.clock.clone());
    (house, clock)
}

/// Seconds between the requests of a URL.
fn gaps(house: &House, url: &str) -> Vec<i64> {
    let times: Vec<i64> = house.receivers.of(url).iter().map(|s| s.at.as_millis()).collect();
    times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_day_forwards_and_back_keeps_nothing_waiting_beyond_its_schedule() {
    let (house, clock) = house();
    house
        .receivers
        .script("https://a/", |nth, _| (Duration::ZERO, answered(if nth < 4 { 500 } else { 200 })));
    house.receivers.script("https://long/", |nth, _| {
        (Duration::ZERO, answered(if nth == 0 { 500 } else { 200 }))
    });
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    let fixed = |wait: &str| {
        json!({"schedule": {"backoff": {"fixed": {"wait": wait}}, "jitter": "none",
            "max_attempts": 10}})
    };
    subscribe(&engine, "https://a/", fixed("20s")).await;
    subscribe(&engine, "https://long/", fixed("10h")).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(5).await;
    // Forwards: what is due by it is attempted, and waits are counted from there.
    clock.ahead(DAY);
    rest(10).await;
    assert_eq!(house.receivers.of("https://a/").len(), 2, "the retry was due by the clock");
    assert_eq!(house.receivers.of("https://long/").len(), 2);
    // Back: the next one is due in twenty seconds, not in a day and twenty seconds.
    clock.ahead(Duration::ZERO);
    rest(200).await;
    let waits = gaps(&house, "https://a/");
    assert_eq!(waits.len(), 4, "{waits:?}");
    assert!(waits[1..].iter().all(|wait| (19..=35).contains(wait)), "{waits:?}");
    let counts = house.counts().await;
    assert_eq!((counts.delivered, counts.pending), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_got_another_time_when_the_clock_was_set_waits_for_its_schedule() {
    let (house, clock) = house();
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    let overrides = json!({"schedule": {"backoff": {"fixed": {"wait": "40s"}}, "jitter": "none",
        "max_attempts": 10}});
    subscribe(&engine, "https://a/", overrides).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(5).await;
    clock.ahead(DAY);
    rest(10).await;
    let before = house.store.all_deliveries()[0].due_at;
    clock.ahead(Duration::ZERO);
    rest(10).await;
    let delivery = house.store.all_deliveries().remove(0);
    assert!(delivery.due_at < before, "it was given another time");
    let waiting = engine.waiting(TENANT, &[delivery]).await.remove(0).expect("it waits");
    assert_eq!(waiting.reason, WaitReason::Schedule, "it has no gate");
}

#[tokio::test(start_paused = true)]
async fn what_was_accepted_by_a_clock_that_was_ahead_is_delivered_at_once_when_it_is_right_again() {
    for restarted in [false, true] {
        let (house, clock) = house();
        let engine = house.engine_on(clock.clone(), 1).await;
        topic(&engine).await;
        let view = subscribe(&engine, "https://a/", json!({})).await;
        engine.pause_subscription(TENANT, view.subscription.id).await.expect("paused");
        clock.ahead(DAY);
        rest(3).await;
        engine.publish(TENANT, publish("1", None)).await.expect("accepted");
        rest(3).await;
        let engine = if restarted {
            engine.stop().await;
            clock.ahead(Duration::ZERO);
            house.engine_on(clock.clone(), 2).await
        } else {
            clock.ahead(Duration::ZERO);
            engine
        };
        engine.resume_subscription(TENANT, view.subscription.id).await.expect("resumed");
        rest(30).await;
        assert_eq!(house.receivers.of("https://a/").len(), 1, "restarted: {restarted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_many_pages_is_looked_at_to_its_end() {
    const EVENTS: usize = 2_500;
    let (house, clock) = house();
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    // One page of those that wait by the right clock comes first.
    let fixed = json!({"schedule": {"backoff": {"fixed": {"wait": "10h"}}, "jitter": "none",
        "max_attempts": 10}});
    let view = subscribe(&engine, "https://a/", fixed).await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::ZERO, answered(if nth < EVENTS { 500 } else { 200 }))
    });
    for _ in 0..EVENTS {
        engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    }
    rest(100).await;
    assert_eq!(house.receivers.of("https://a/").len(), EVENTS, "all of them have failed once");
    engine.pause_subscription(TENANT, view.subscription.id).await.expect("paused");
    clock.ahead(DAY);
    rest(3).await;
    for _ in 0..EVENTS {
        engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    }
    clock.ahead(Duration::ZERO);
    rest(3).await;
    engine.resume_subscription(TENANT, view.subscription.id).await.expect("resumed");
    rest(300).await;
    assert_eq!(house.receivers.of("https://a/").len(), 2 * EVENTS);
    let counts = house.counts().await;
    assert_eq!((counts.delivered, counts.pending), (EVENTS as u64, EVENTS as u64));
}

/// An engine with a receiver that wants an hour before the second attempt, though its schedule says seconds.
async fn asking_for_an_hour(house: &House, clock: &Arc<VirtualClock>) -> Engine {
    house.receivers.script("https://a/", |nth, _| {
        let mut outcome = answered(if nth == 0 { 503 } else { 200 });
        if let posthorn_domain::AttemptOutcome::Answered(answer) = &mut outcome {
            answer.retry_after = Some("3600".to_owned());
        }
        (Duration::ZERO, outcome)
    });
    let engine = house.engine_on(clock.clone(), 1).await;
    topic(&engine).await;
    let overrides = json!({"schedule": {"backoff": {"fixed": {"wait": "5s"}}, "jitter": "none",
        "max_attempts": 3}});
    subscribe(&engine, "https://a/", overrides).await;
    engine
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_receiver_asked_for_while_the_clock_was_ahead_is_kept() {
    for ahead in [DAY, Duration::from_secs(60)] {
        let (house, clock) = house();
        let engine = asking_for_an_hour(&house, &clock).await;
        clock.ahead(ahead);
        rest(3).await;
        engine.publish(TENANT, publish("1", None)).await.expect("accepted");
        rest(3).await;
        clock.ahead(Duration::ZERO);
        rest(3_500).await;
        assert_eq!(house.receivers.of("https://a/").len(), 1, "it asked for an hour: {ahead:?}");
        rest(120).await;
        assert_eq!(house.receivers.of("https://a/").len(), 2, "and not for more: {ahead:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_receiver_asked_for_before_the_clock_was_set_stays() {
    let (house, clock) = house();
    let engine = asking_for_an_hour(&house, &clock).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    clock.ahead(Duration::from_secs(30));
    rest(10).await;
    clock.ahead(Duration::ZERO);
    rest(3_000).await;
    assert_eq!(house.receivers.of("https://a/").len(), 1, "it asked for an hour");
    rest(1_000).await;
    assert_eq!(house.receivers.of("https://a/").len(), 2);
}
