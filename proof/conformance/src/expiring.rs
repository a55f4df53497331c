//! Cases about events with a retention of their own.

use std::sync::Arc;

use posthorn_domain::{Event, EventId, Lane, Span, SubscriptionId, Timestamp};
use posthorn_store::{EventFilter, Listing, NewEvent, Prune};

use super::Fixture;
use super::builders::{
    Published, Setting, at, dead_block, dead_skip, delivered, delivery, event, whole,
};

/// An hour.
const KEPT: i64 = 3_600_000;

/// Publishes an event that is kept for an hour.
async fn publish_kept(
    setting: &Setting,
    deliver_at: Option<Timestamp>,
    to: &[(SubscriptionId, Option<Lane>)],
) -> Published {
    let new = to.iter().map(|(id, lane)| delivery(*id, lane.clone())).collect();
    let planned = setting.planned(new).await;
    let retention = Some(Span::from_millis(KEPT.unsigned_abs()));
    let event = Event { deliver_at, retention, ..event(setting.tenant) };
    setting.accept(NewEvent { event: Arc::new(event), ..planned }).await
}

/// Removes what is over at `now` and nothing else, in bites of so many; how many events went.
async fn expire(setting: &Setting, now: i64, limit: usize) -> usize {
    let never = Timestamp::MIN;
    let prune = Prune {
        now: at(now),
        ended_before: never,
        dead_before: never,
        keys_before: never,
        recalls_before: never,
        audit_before: never,
        limit,
    };
    let mut events = 0;
    for _ in 0..100 {
        let pruned = setting.store.prune(prune).await.expect("prune");
        assert!(pruned.events <= limit, "at most the limit");
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

/// What is over goes with its deliveries and attempts; others stay.
pub async fn expired_events_go(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let kept = publish_kept(&setting, None, &[(a, None), (b, None)]).await;
    let plain = setting.publish(&[(a, None)]).await;
    let unwanted = publish_kept(&setting, None, &[]).await;
    for (id, step) in [
        (kept.deliveries[0], delivered()),
        (kept.deliveries[1], dead_skip()),
        (plain.deliveries[0], delivered()),
    ] {
        setting.record(id, step, at(10)).await;
    }
    let dead = EventFilter { with_dead_letters: true, ..EventFilter::default() };
    let page = setting.store.events(setting.tenant, dead.clone(), Listing::newest(9)).await;
    assert_eq!(page.expect("a page").items.len(), 1);
    let setting = setting.reopen(fixture).await;
    assert_eq!(expire(&setting, KEPT - 1, 10).await, 0);
    assert_eq!(expire(&setting, KEPT, 10).await, 2);
    assert!(!is_there(&setting, kept.event.id).await, "its dead letter as well");
    assert!(!is_there(&setting, unwanted.event.id).await);
    assert!(is_there(&setting, plain.event.id).await);
    for id in &kept.deliveries {
        assert_eq!(setting.store.delivery(setting.tenant, *id).await.expect("a lookup"), None);
        let attempts = setting.store.attempts(setting.tenant, *id).await.expect("attempts");
        assert!(attempts.is_empty());
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.delivered, counts.dead), (1, 1, 0));
    let page = setting.store.events(setting.tenant, dead, Listing::newest(9)).await;
    assert!(page.expect("a page").items.is_empty());
    assert_eq!(expire(&setting, 9 * KEPT, 10).await, 0);
}

/// Unfinished work stays, and goes when it has ended and is looked at again.
pub async fn expiry_never_eats_unfinished_work(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let half = publish_kept(&setting, None, &[(a, None), (b, None)]).await;
    setting.record(half.deliveries[0], delivered(), at(10)).await;
    for n in 0..3 {
        let other = publish_kept(&setting, None, &[(a, None)]).await;
        if n > 0 {
            setting.record(other.deliveries[0], delivered(), at(10)).await;
        }
    }
    assert_eq!(expire(&setting, KEPT, 1).await, 2, "who must stay does not stop the others");
    assert!(is_there(&setting, half.event.id).await);
    assert_eq!(setting.store.counts(None).await.expect("counts").pending, 2);
    setting.record(half.deliveries[1], delivered(), at(KEPT + 1)).await;
    assert_eq!(expire(&setting, KEPT + 3_600_001, 10).await, 1);
    assert!(!is_there(&setting, half.event.id).await);
}

/// A dead letter that somebody waits behind stays until it no longer blocks.
pub async fn expiry_leaves_dead_letters_that_block_a_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = publish_kept(&setting, None, &[(subscription, whole())]).await;
    let waiting = setting.publish_in(subscription, whole()).await;
    setting.record(head.deliveries[0], dead_block(), at(10)).await;
    assert_eq!(expire(&setting, KEPT, 10).await, 0);
    let moved = setting.store.cancel_delivery(setting.tenant, head.deliveries[0], at(20)).await;
    assert_eq!(moved.expect("cancel").ready.expect("the next").delivery.id, waiting);
    assert_eq!(expire(&setting, 2 * KEPT + 1, 10).await, 1);
    assert!(!is_there(&setting, head.event.id).await);
    assert_eq!(setting.ready(subscription).await, [waiting]);
}

/// The retention of an event that is to be delivered later counts from that time.
pub async fn retention_counts_from_the_time_of_delivery(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let later = Some(at(KEPT));
    let unwanted = publish_kept(&setting, later, &[]).await;
    let ordered = publish_kept(&setting, later, &[(subscription, whole())]).await;
    let entered = setting.store.enter_lanes(10, at(KEPT)).await.expect("an answer");
    assert_eq!(entered.subscriptions, [subscription]);
    setting.record(ordered.deliveries[0], delivered(), at(KEPT + 1)).await;
    assert_eq!(expire(&setting, 2 * KEPT - 1, 10).await, 0);
    assert_eq!(expire(&setting, 2 * KEPT, 10).await, 2);
    assert!(!is_there(&setting, unwanted.event.id).await);
    assert!(!is_there(&setting, ordered.event.id).await);
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (0, 0));
}

/// What everybody's retention removes first is gone, and nobody looks for it later.
pub async fn the_retention_of_all_counts_too(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let kept = publish_kept(&setting, None, &[(subscription, None)]).await;
    setting.record(kept.deliveries[0], delivered(), at(10)).await;
    let later = Event { deliver_at: Some(at(5_000)), ..event(setting.tenant) };
    let id = later.id;
    let planned = setting.planned(vec![]).await;
    setting.accept(NewEvent { event: Arc::new(later), ..planned }).await;
    let never = Timestamp::MIN;
    let prune = Prune {
        now: at(1_000),
        ended_before: at(1_000),
        dead_before: at(1_000),
        keys_before: never,
        recalls_before: never,
        audit_before: never,
        limit: 10,
    };
    assert_eq!(setting.store.prune(prune).await.expect("prune").events, 1);
    assert!(!is_there(&setting, kept.event.id).await);
    assert!(is_there(&setting, id).await, "its time has not come");
    assert_eq!(expire(&setting, 9 * KEPT, 10).await, 0);
}
