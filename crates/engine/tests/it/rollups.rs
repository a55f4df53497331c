//! What happened is what the figures of the past say.

use std::time::Duration;

use posthorn_domain::{
    Clock as _, FailureClass, NodeId, RealmName, RollupCounts, RollupScope, RollupStep, Span,
    SubscriptionId,
};
use posthorn_engine::Engine;
use posthorn_store::{MinuteRollup, Rollups, Series, SeriesAsk, Store};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, refused, rest, subscribe, topic};

/// Everything that the store has of a scope.
async fn series(house: &House, scope: RollupScope, step: RollupStep) -> Series {
    let until = house.clock.now().plus(Span::from_secs(86_400));
    let from = posthorn_domain::Timestamp::MIN;
    house.store.series(SeriesAsk { scope, step, from, until }).await.expect("the model answers")
}

/// The same, all of it together and without the backlog.
async fn sum(house: &House, scope: RollupScope) -> RollupCounts {
    let mut sum = RollupCounts::default();
    for (_, counts) in series(house, scope, RollupStep::Minute).await {
        sum.add(&counts);
    }
    sum.backlog = None;
    sum
}

fn of(id: SubscriptionId) -> RollupScope {
    RollupScope::Subscription(id)
}

fn failed(counts: &RollupCounts, class: FailureClass) -> u64 {
    counts.failed[class as usize]
}

/// Publishes to three receivers: one that works, one that answers 500 four times, and one that is not there.
async fn work(house: &House, engine: &Engine) -> [SubscriptionId; 3] {
    house.receivers.script("https://bad/", |_, _| (Duration::from_millis(30), answered(500)));
    house.receivers.script("https://gone/", |_, _| (Duration::from_secs(3), refused()));
    let tries = |count: u32| {
        json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none",
            "max_attempts": count}, "breaker": null})
    };
    let good = subscribe(engine, "https://good/", json!({})).await;
    let bad = subscribe(engine, "https://bad/", tries(4)).await;
    let gone = subscribe(engine, "https://gone/", tries(1)).await;
    for _ in 0..10 {
        engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    }
    [good, bad, gone].map(|view| view.subscription.id)
}

#[tokio::test(start_paused = true)]
async fn after_a_clean_stop_the_series_say_what_was_delivered() {
    let (house, engine) = House::open().await;
    let [good, bad, gone] = work(&house, &engine).await;
    rest(600).await;
    let counts = house.counts().await;
    assert_eq!((counts.pending, counts.delivered, counts.dead), (0, 10, 20));
    // The last words before the end.
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(20)).await;
    engine.stop().await;
    let counts = house.counts().await;
    let found = sum(&house, of(good)).await;
    assert_eq!((found.published, found.delivered, found.attempts()), (11, 11, 11));
    assert_eq!(found.took[2], 11, "each takes 5 ms: {found:?}");
    let found = sum(&house, of(bad)).await;
    assert_eq!((found.published, found.delivered, found.dead), (11, 0, 10));
    let attempts = house.store.all_attempts();
    let of_all = |status| attempts.iter().filter(|attempt| attempt.status == status).count() as u64;
    assert_eq!(found.attempts(), of_all(Some(500)));
    assert_eq!(failed(&found, FailureClass::Broken), found.attempts());
    let found = sum(&house, of(gone)).await;
    assert_eq!(failed(&found, FailureClass::Connection), of_all(None));
    let realm = RollupScope::Realm(RealmName::default());
    for scope in [RollupScope::Tenant(TENANT), realm, RollupScope::Server] {
        let found = sum(&house, scope).await;
        assert_eq!(found.published, counts.events, "events, not who gets them");
        assert_eq!((found.delivered, found.dead), (counts.delivered, counts.dead));
        assert_eq!(found.attempts(), attempts.len() as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn two_nodes_add_up() {
    let house = House::new();
    let one = house.engine(1).await;
    topic(&one).await;
    let two = house.engine(2).await;
    rest(30).await;
    work(&house, &one).await;
    for _ in 0..5 {
        two.publish(TENANT, publish("{}", None)).await.expect("accepted");
    }
    rest(600).await;
    one.stop().await;
    two.stop().await;
    let counts = house.counts().await;
    assert_eq!(counts.events, 15);
    let found = sum(&house, RollupScope::Server).await;
    assert_eq!((found.published, found.delivered, found.dead), (15, counts.delivered, counts.dead));
    assert_eq!(found.attempts(), house.store.all_attempts().len() as u64);
}

/// Counted when it was written down, and written with what comes next, or by itself when nothing does.
#[tokio::test(start_paused = true)]
async fn figures_are_a_second_or_two_behind() {
    let (house, engine) = House::open().await;
    let [good, ..] = work(&house, &engine).await;
    rest(3).await;
    assert_eq!(sum(&house, of(good)).await.delivered, 10);
    engine.kill();
    assert_eq!(sum(&house, of(good)).await.delivered, 10, "written is written");
}

#[tokio::test(start_paused = true)]
async fn the_backlog_is_looked_at_once_a_minute() {
    let (house, engine) = House::open().await;
    rest(10).await;
    let view = subscribe(&engine, "https://good/", json!({})).await;
    let id = view.subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("it can be paused");
    for _ in 0..7 {
        engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    }
    rest(180).await;
    let from = house.clock.now().minus(Span::from_secs(120));
    let until = house.clock.now();
    let realm = RollupScope::Realm(RealmName::default());
    for scope in [of(id), RollupScope::Tenant(TENANT), realm, RollupScope::Server] {
        let points =
            engine.series(scope.clone(), RollupStep::Minute, from, until).await.expect("a series");
        let [before @ .., _] = &points[..] else { panic!("minutes") };
        assert!(before.iter().all(|(_, counts)| counts.backlog == Some(7)), "{scope}: {points:?}");
    }
    engine.resume_subscription(TENANT, id).await.expect("it goes on");
    rest(120).await;
    let from = house.clock.now().minus(Span::from_secs(60));
    let soon = from.plus(Span::from_secs(1));
    let points = engine.series(of(id), RollupStep::Minute, from, soon).await.expect("a series");
    assert_eq!(points[0].1.backlog, Some(0), "nothing is not unknown: {points:?}");
    let long_ago = posthorn_domain::Timestamp::from_millis(0);
    let later = long_ago.plus(Span::from_secs(60));
    let points =
        engine.series(of(id), RollupStep::Minute, long_ago, later).await.expect("a series");
    assert_eq!(points, [(long_ago, RollupCounts::default())], "nobody has looked then");
}

/// Minutes are kept for two days, hours for ninety.
#[tokio::test(start_paused = true)]
async fn old_minutes_become_hours_and_go() {
    let (house, engine) = House::open().await;
    let now = house.clock.now();
    let scope = of(SubscriptionId::new(now, 1));
    let ago = |hours: u64| RollupStep::Hour.floor(now.minus(Span::from_secs(3_600 * hours)));
    let row = |hours: u64| MinuteRollup {
        scope: scope.clone(),
        minute: ago(hours),
        counts: RollupCounts { delivered: hours, ..RollupCounts::default() },
    };
    let minutes = [91 * 24, 89 * 24, 50, 47].map(row).to_vec();
    let counted = Rollups { node: NodeId::new(now, 1), number: 1, minutes };
    house.store.record_with(Vec::new(), Some(counted)).await.expect("the model writes");
    rest(130).await;
    let delivered = async |step| {
        let series = series(&house, scope.clone(), step).await;
        series.into_iter().map(|(at, counts)| (at, counts.delivered)).collect::<Vec<_>>()
    };
    assert_eq!(delivered(RollupStep::Minute).await, [(ago(47), 47)]);
    let hours = [89 * 24, 50, 47].map(|hours| (ago(hours), hours));
    assert_eq!(delivered(RollupStep::Hour).await, hours);
    engine.kill();
}
