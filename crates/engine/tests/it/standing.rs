//! How subscriptions stand.

use std::time::Duration;

use posthorn_domain::{LaneKey, SubscriptionId, WaitReason};
use posthorn_engine::{BreakerState, Engine, Error, Standing};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, refused, rest, subscribe, topic};

async fn standing(engine: &Engine, id: SubscriptionId) -> Standing {
    engine.standing(TENANT, id).await.expect("it is there")
}

#[tokio::test(start_paused = true)]
async fn one_that_works_and_one_that_has_nothing_to_do() {
    let (house, engine) = House::open().await;
    let id = subscribe(&engine, "https://a/", json!({"limits": {"concurrency": 5}})).await;
    let id = id.subscription.id;
    rest(2).await;
    let idle = standing(&engine, id).await;
    let live = idle.live.expect("this node's");
    assert_eq!((live.breaker, live.at_once, live.state.in_flight), (BreakerState::Closed, 5, 0));
    assert_eq!((idle.concurrency, idle.rate, idle.pending), (Some(5), None, Some(0)));
    assert_eq!((idle.last_hour.sampled, idle.last_hour.success_rate), (0, None));
    assert_eq!((idle.waiting, idle.oldest_due_at), (None, None));
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_millis(20), answered(if nth == 0 { 500 } else { 200 }))
    });
    for n in 0..4 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(2).await;
    let hour = standing(&engine, id).await.last_hour;
    assert_eq!((hour.sampled, hour.complete, hour.success_rate), (4, true, Some(0.75)));
    assert!(hour.p95.is_some());
    rest(4_000).await;
    assert!(standing(&engine, id).await.last_hour.sampled < 4, "an hour later");
}

#[tokio::test(start_paused = true)]
async fn breaker_and_concurrency_are_those_of_the_scheduler() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(2), refused()));
    let id = subscribe(&engine, "https://a/", json!({})).await.subscription.id;
    for n in 0..50 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    let mut seen = Vec::new();
    for _ in 0..60 {
        rest(1).await;
        let now = standing(&engine, id).await;
        let live = now.live.expect("this node's");
        match live.breaker {
            BreakerState::Open(until) => {
                assert!(until > engine.now());
                assert_eq!(now.waiting.map(|w| w.reason), Some(WaitReason::Breaker));
                seen.push("open");
            }
            BreakerState::Probing => seen.push("probing"),
            BreakerState::Closed => seen.push("closed"),
        }
        assert!(live.at_once >= 2);
    }
    seen.dedup();
    assert!(seen.starts_with(&["closed"]) && seen.contains(&"open"), "{seen:?}");
    assert!(seen.contains(&"probing"), "{seen:?}");
    let last = standing(&engine, id).await;
    assert_eq!(last.pending, Some(50));
    assert!(last.oldest_due_at.is_some());
    assert!(last.live.expect("this node's").state.failing_since.is_some());
    engine.pause_subscription(TENANT, id).await.expect("paused");
    rest(5).await;
    let paused = standing(&engine, id).await;
    assert_eq!(paused.waiting.map(|waiting| waiting.reason), Some(WaitReason::Paused));
}

#[tokio::test(start_paused = true)]
async fn a_rate_says_when_it_goes_on_and_lanes_what_they_wait_for() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, seen| {
        (Duration::ZERO, answered(if seen.body.starts_with(b"1") { 500 } else { 200 }))
    });
    let policy = json!({"limits": {"rate": 0.1}, "order": {"scope": "key"}, "schedule":
        {"backoff": {"fixed": {"wait": "1h"}}, "jitter": "none", "max_attempts": 5}});
    let id = subscribe(&engine, "https://a/", policy).await.subscription.id;
    engine.publish(TENANT, publish("1", Some("k"))).await.expect("accepted");
    rest(1).await;
    engine.publish(TENANT, publish("2", Some("k"))).await.expect("accepted");
    engine.publish(TENANT, publish("3", Some("other"))).await.expect("accepted");
    rest(1).await;
    let now = standing(&engine, id).await;
    assert_eq!(now.rate, Some(0.1));
    let next = now.live.and_then(|live| live.next_slot).expect("not at once");
    assert!(next > engine.now());
    assert_eq!(now.blocked_count, 1);
    let mut all = house.store.all_deliveries();
    all.sort_by_key(|delivery| delivery.seq);
    let blocked = &now.blocked[0];
    assert_eq!(blocked.key, Some(LaneKey::new("k").expect("a key")));
    assert_eq!((blocked.head, blocked.since), (Some(all[0].id), all[1].created_at));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_own_it_says_so_and_tells_the_rest() {
    let house = House::new();
    let first = house.engine(1).await;
    rest(2).await;
    let second = house.engine(2).await;
    rest(30).await;
    topic(&first).await;
    let mut owned = [0, 0];
    for n in 0..10 {
        let id = subscribe(&first, &format!("https://{n}/"), json!({})).await.subscription.id;
        rest(3).await;
        let (a, b) = (standing(&first, id).await, standing(&second, id).await);
        assert_ne!(a.live.is_some(), b.live.is_some(), "one of them works on it");
        assert_eq!((a.concurrency, a.pending), (b.concurrency, b.pending));
        owned[usize::from(b.live.is_some())] += 1;
    }
    assert!(owned[0] > 0 && owned[1] > 0, "{owned:?}");
    let nobody = SubscriptionId::new(first.now(), 1);
    assert!(matches!(first.standing(TENANT, nobody).await, Err(Error::NotFound("subscription"))));
}
