//! Cases about removing history.

use std::sync::Arc;

use posthorn_domain::{Event, EventId, Span, Timestamp};

use super::Fixture;
use super::builders::{
    Setting, at, dead_block, dead_skip, delivered, delivery, event, idempotency, whole,
};
use posthorn_store::{Accepted, NewEvent, Prune};

fn before(ended: i64, dead: i64) -> Prune {
    let keys_before = Timestamp::MIN;
    Prune {
        now: at(0),
        ended_before: at(ended),
        dead_before: at(dead),
        keys_before,
        recalls_before: at(0),
        audit_before: at(0),
        limit: 100,
    }
}

/// Prunes until there is no more; how many events went.
async fn prune(setting: &Setting, prune: Prune) -> usize {
    let mut events = 0;
    for _ in 0..100 {
        let pruned = setting.store.prune(prune).await.expect("prune");
        assert!(pruned.events <= prune.limit, "at most the limit");
        events += pruned.events;
        if !pruned.more {
            return events;
        }
    }
    panic!("pruning comes to an end");
}

async fn is_there(setting: &Setting, id: EventId) -> bool {
    setting.store.event(setting.tenant, id).await.expect("a lookup").is_some()
}

/// An event goes with its deliveries and attempts once all of them ended before the limit.
pub async fn prune_removes_what_ended_long_ago(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let old = setting.publish(&[(a, None), (b, None)]).await;
    let mixed = setting.publish(&[(a, None), (b, None)]).await;
    for (id, when) in [
        (old.deliveries[0], 10),
        (old.deliveries[1], 99),
        (mixed.deliveries[0], 10),
        (mixed.deliveries[1], 100),
    ] {
        setting.record(id, delivered(), at(when)).await;
    }
    assert_eq!(prune(&setting, before(100, 100)).await, 1);
    assert!(!is_there(&setting, old.event.id).await);
    for id in &old.deliveries {
        assert_eq!(setting.store.delivery(setting.tenant, *id).await.expect("a lookup"), None);
        let attempts = setting.store.attempts(setting.tenant, *id).await.expect("attempts");
        assert!(attempts.is_empty());
    }
    assert!(is_there(&setting, mixed.event.id).await);
    assert_eq!(setting.look(mixed.deliveries[0]).await.attempts, 1);
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.delivered, counts.deliveries()), (1, 2, 2));
    assert_eq!(prune(&setting, before(101, 101)).await, 1);
    let next = setting.publish(&[(a, None)]).await;
    assert!(next.placed[0].seq > mixed.placed[1].seq, "seq is never used again");
}

/// However old: nothing with an unfinished delivery goes.
pub async fn prune_never_eats_unfinished_work(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let half = setting.publish(&[(a, None), (b, None)]).await;
    setting.publish(&[(a, whole())]).await;
    let parked = setting.publish(&[(a, whole())]).await;
    setting.record(half.deliveries[0], delivered(), at(1)).await;
    assert_eq!(prune(&setting, before(1_000_000, 1_000_000)).await, 0);
    assert!(is_there(&setting, half.event.id).await);
    assert!(is_there(&setting, parked.event.id).await);
    assert_eq!(setting.store.counts(None).await.expect("counts").pending, 3);
}

/// Dead letters have a limit of their own.
pub async fn prune_leaves_young_dead_letters(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let dead = setting.publish(&[(a, None), (b, None)]).await;
    setting.record(dead.deliveries[0], delivered(), at(10)).await;
    setting.record(dead.deliveries[1], dead_skip(), at(50)).await;
    assert_eq!(prune(&setting, before(1_000, 50)).await, 0);
    assert_eq!(prune(&setting, before(50, 1_000)).await, 0);
    assert!(is_there(&setting, dead.event.id).await);
    assert_eq!(prune(&setting, before(1_000, 51)).await, 1);
}

/// A dead letter somebody waits behind is needed: without it the lane would never go on.
pub async fn prune_leaves_dead_letters_that_block_a_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish(&[(subscription, whole())]).await;
    let waiting = setting.publish_in(subscription, whole()).await;
    setting.record(head.deliveries[0], dead_block(), at(10)).await;
    assert_eq!(prune(&setting, before(1_000, 1_000)).await, 0);
    let moved = setting.store.cancel_delivery(setting.tenant, head.deliveries[0], at(20)).await;
    let ready = moved.expect("cancel").ready.expect("the next goes on");
    assert_eq!(ready.delivery.id, waiting);
    assert_eq!(prune(&setting, before(1_000, 1_000)).await, 1);
}

/// An event without deliveries goes by the time it was accepted.
pub async fn prune_removes_events_nobody_wanted(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut ids = Vec::new();
    for accepted in [10, 20] {
        let event = Event { accepted_at: at(accepted), ..event(setting.tenant) };
        ids.push(event.id);
        let new = NewEvent { event: Arc::new(event), ..setting.planned(vec![]).await };
        setting.accept(new).await;
    }
    assert_eq!(prune(&setting, before(20, 20)).await, 1);
    assert!(!is_there(&setting, ids[0]).await);
    assert!(is_there(&setting, ids[1]).await);
}

/// Keys go by the time their event was accepted, and can then be used again.
pub async fn prune_removes_old_keys(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut events = Vec::new();
    for (key, accepted) in [("old", 10), ("young", 20)] {
        let event = Event { accepted_at: at(accepted), ..event(setting.tenant) };
        let mut new = NewEvent {
            event: Arc::new(event),
            ..setting.planned(vec![delivery(subscription, None)]).await
        };
        new.idempotency = Some(idempotency(key, 1));
        events.push(setting.accept(new).await.event.id);
    }
    let keys = Prune { keys_before: at(20), ..before(0, 0) };
    let pruned = setting.store.prune(keys).await.expect("prune");
    assert_eq!((pruned.events, pruned.keys), (0, 1));
    assert!(is_there(&setting, events[0]).await);
    let mut batch = Vec::new();
    for key in ["old", "young"] {
        let mut new = setting.planned(vec![]).await;
        new.idempotency = Some(idempotency(key, 1));
        batch.push(new);
    }
    let replies = setting.store.accept(batch).await.expect("accept");
    assert!(matches!(replies[0], Accepted::Stored(_)));
    assert_eq!(replies[1], Accepted::Duplicate { event: events[1] });
}

/// A bite is at most the limit, and says whether there may be more.
pub async fn prune_takes_small_bites(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for _ in 0..5 {
        let id = setting.publish_one(subscription).await;
        setting.record(id, delivered(), at(10)).await;
        setting.publish_one(subscription).await;
    }
    let bite = Prune { limit: 2, ..before(100, 100) };
    let first = setting.store.prune(bite).await.expect("prune");
    assert_eq!((first.events, first.more), (2, true));
    assert_eq!(prune(&setting, bite).await, 3);
    assert_eq!(setting.ready(subscription).await.len(), 5);
}

/// What went for its age is known by the limit of that time, also when later limits are lower; what had a retention of its
/// own does not count.
pub async fn what_was_removed_for_its_age_is_remembered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let known = async |setting: &Setting| setting.store.pruned_before().await.expect("an answer");
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, delivered(), at(10)).await;
    assert_eq!(prune(&setting, before(10, 10)).await, 0);
    assert_eq!(known(&setting).await, None, "nothing went");
    let retention = Some(Span::from_secs(1));
    let event = Event { retention, accepted_at: at(500), ..event(setting.tenant) };
    let new = NewEvent { event: Arc::new(event), ..setting.planned(vec![]).await };
    setting.accept(new).await;
    assert_eq!(prune(&setting, Prune { now: at(5_000), ..before(10, 10) }).await, 1);
    assert_eq!(known(&setting).await, None, "it had a retention of its own");
    assert_eq!(prune(&setting, before(100, 100)).await, 1);
    assert_eq!(known(&setting).await, Some(at(100)));
    // A retention that was raised, and one that was lowered again.
    let id = setting.publish_one(subscription).await;
    setting.record(id, delivered(), at(20)).await;
    assert_eq!(prune(&setting, before(50, 50)).await, 1);
    assert_eq!(known(&setting).await, Some(at(100)));
    assert_eq!(prune(&setting, before(900, 900)).await, 0);
    assert_eq!(known(&setting).await, Some(at(100)));
    let setting = setting.reopen(fixture).await;
    assert_eq!(known(&setting).await, Some(at(100)));
}
