//! Cases about deliveries that an operator removes for good.

use std::sync::Arc;

use posthorn_domain::{CancelReason, DeadReason, DeliveryId, DeliveryState, Timestamp};

use super::Fixture;
use super::builders::{
    Setting, at, attempt, dead_block, dead_skip, delivered, failed, redrive, tenant, whole,
};
use posthorn_store::{
    DeliveryFilter, Error, Listing, Moved, Prune, Record, Recorded, Refusal, Result, Store,
};

async fn forget(setting: &Setting, id: DeliveryId, when: i64) -> Result<Moved> {
    setting.store.forget_delivery(setting.tenant, id, at(when)).await
}

#[track_caller]
fn not_found(result: Result<Moved>) {
    match result {
        Err(Error::Refused(Refusal::NotFound)) => {}
        other => panic!("not found, not {other:?}"),
    }
}

async fn is_gone(setting: &Setting, id: DeliveryId) {
    let store = &setting.store;
    assert_eq!(store.delivery(setting.tenant, id).await.expect("answers"), None);
    assert!(store.attempts(setting.tenant, id).await.expect("answers").is_empty());
    let filter = DeliveryFilter::default();
    let page =
        store.deliveries(setting.tenant, filter, Listing::newest(100)).await.expect("answers");
    assert!(page.items.iter().all(|delivery| delivery.id != id), "no list has it");
}

/// An ended delivery and its attempts are gone; its event is not, and a repeat finds nothing.
pub async fn forgotten_delivery_is_gone_with_its_attempts(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for end in [delivered(), dead_skip()] {
        let id = setting.publish_one(subscription).await;
        setting.record(id, failed(at(20)), at(10)).await;
        setting.record(id, end, at(20)).await;
        let before = setting.look(id).await;
        let moved = forget(&setting, id, 30).await.expect("forgotten");
        assert_eq!((&moved.delivery, &moved.ready), (&before, &None), "as it ended");
        is_gone(&setting, id).await;
        let event = setting.store.event(setting.tenant, before.event).await.expect("answers");
        assert!(event.is_some());
        not_found(forget(&setting, id, 31).await);
        not_found(setting.store.retry_delivery(setting.tenant, id, at(32)).await);
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.delivered, counts.dead, counts.pending), (2, 0, 0, 0));
}

/// An unfinished delivery is cancelled by it, and nobody works on it any more.
pub async fn forgetting_ends_what_has_not_ended(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let moved = forget(&setting, id, 9).await.expect("forgotten");
    assert_eq!(moved.delivery.state, DeliveryState::Cancelled(CancelReason::Operator));
    assert_eq!(moved.delivery.ended_at, Some(at(9)));
    is_gone(&setting, id).await;
    assert!(setting.ready(subscription).await.is_empty());
    let pending = setting.store.pending_by_tenant().await.expect("counts");
    assert!(pending.iter().all(|(tenant, _)| *tenant != setting.tenant), "{pending:?}");
}

/// What an attempt under way brings back later changes nothing and leaves no trace.
pub async fn late_result_for_a_forgotten_delivery_is_superseded(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    forget(&setting, id, 9).await.expect("forgotten");
    let record = Record {
        fence: setting.fence(subscription),
        tenant: setting.tenant,
        delivery: id,
        expected_attempts: 0,
        expected_revival: 0,
        ordered: false,
        step: failed(at(50)),
        attempt: Some(attempt(id, 1, 500)),
        standing: None,
        told: Vec::new(),
        at: at(10),
    };
    let answers = setting.store.record(vec![record]).await.expect("recorded");
    assert_eq!(answers, [Recorded::Superseded]);
    is_gone(&setting, id).await;
    assert!(setting.ready(subscription).await.is_empty());
}

/// The lane of a forgotten head goes on.
pub async fn forgotten_head_promotes_the_next(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let next = setting.publish_in(subscription, whole()).await;
    let moved = forget(&setting, head, 9).await.expect("forgotten");
    let ready = moved.ready.expect("the next goes on");
    assert_eq!((ready.delivery.id, ready.delivery.due_at), (next, at(9)));
    assert_eq!(setting.ready(subscription).await, [next]);
}

/// The attempt of a forgotten head may still arrive, so the next waits until it cannot any more.
pub async fn forgotten_attempt_under_way_holds_its_lane_until_the_lease_ends(
    fixture: &dyn Fixture,
) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let next = setting.publish_in(subscription, whole()).await;
    setting.lease(head, at(500)).await;
    let moved = forget(&setting, head, 9).await.expect("forgotten");
    assert_eq!(moved.delivery.ended_at, Some(at(9)));
    let ready = moved.ready.expect("the next goes on");
    assert_eq!((ready.delivery.id, ready.delivery.due_at), (next, at(500)));
    assert!(setting.pending(subscription, at(499)).await.is_empty());
    assert_eq!(setting.ready(subscription).await, [next]);
}

/// A forgotten dead letter no longer blocks its lane.
pub async fn forgotten_blocker_releases_the_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let next = setting.publish_in(subscription, whole()).await;
    setting.record(head, dead_block(), at(5)).await;
    assert!(setting.ready(subscription).await.is_empty());
    let moved = forget(&setting, head, 9).await.expect("forgotten");
    assert_eq!(moved.delivery.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!(moved.ready.map(|work| work.delivery.id), Some(next));
    setting.record(next, delivered(), at(10)).await;
    let later = setting.publish(&[(subscription, whole())]).await;
    assert!(!later.placed[0].parked, "the lane is free");
}

/// A forgotten delivery in the middle of a lane changes nothing for its head, and is passed over.
pub async fn forgotten_parked_delivery_is_passed_over(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let parked = setting.publish_in(subscription, whole()).await;
    let last = setting.publish_in(subscription, whole()).await;
    let moved = forget(&setting, parked, 9).await.expect("forgotten");
    assert_eq!(moved.ready, None);
    assert_eq!(setting.ready(subscription).await, [head]);
    let promoted = setting.record(head, delivered(), at(10)).await;
    assert_eq!(promoted.map(|work| work.delivery.id), Some(last));
}

/// A redrive that runs finds what is left.
pub async fn forgotten_dead_letter_is_not_redriven(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = setting.publish_one(subscription).await;
        setting.record(id, dead_skip(), at(5)).await;
        ids.push(id);
    }
    let redrive = redrive(setting.tenant, at(100));
    let made = setting.store.create_redrive(redrive).await.expect("made");
    forget(&setting, ids[1], 9).await.expect("forgotten");
    let advanced =
        setting.store.advance_redrive(made.id, 10, at(20), None).await.expect("advanced");
    assert_eq!(advanced.moved, 2);
    assert_eq!(setting.ready(subscription).await, [ids[0], ids[2]]);
}

/// Another tenant's delivery is not there.
pub async fn foreign_deliveries_cannot_be_forgotten(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let other = setting.other_tenant().await;
    not_found(setting.store.forget_delivery(other, id, at(9)).await);
    not_found(setting.store.forget_delivery(tenant().id, id, at(9)).await);
    not_found(forget(&setting, DeliveryId::new(at(0), 7), 9).await);
    assert_eq!(setting.ready(subscription).await, [id], "it goes on");
}

async fn prune(store: &Arc<dyn Store>, before: i64) -> usize {
    let all = at(before);
    let keys_before = Timestamp::MIN;
    let prune = Prune {
        now: all,
        ended_before: all,
        dead_before: all,
        keys_before,
        recalls_before: at(0),
        audit_before: at(0),
        limit: 100,
    };
    let mut events = 0;
    loop {
        let pruned = store.prune(prune).await.expect("pruned");
        events += pruned.events;
        if !pruned.more {
            return events;
        }
    }
}

/// An event whose every delivery was forgotten goes by the time it was accepted.
pub async fn event_of_forgotten_deliveries_goes_by_its_age(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, delivered(), at(5)).await;
    let event = setting.look(id).await.event;
    forget(&setting, id, 9).await.expect("forgotten");
    assert_eq!(prune(&setting.store, 0).await, 0, "not old enough");
    assert!(setting.store.event(setting.tenant, event).await.expect("answers").is_some());
    assert_eq!(prune(&setting.store, 1).await, 1);
    assert!(setting.store.event(setting.tenant, event).await.expect("answers").is_none());
}

/// What else an event is delivered to is not touched, and prunes as ever.
pub async fn rest_of_an_event_stays_and_ends(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (one, two) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(one, None), (two, None)]).await;
    let (first, second) = (published.deliveries[0], published.deliveries[1]);
    forget(&setting, first, 9).await.expect("forgotten");
    assert_eq!(prune(&setting.store, 1_000).await, 0, "one is unfinished");
    assert_eq!(setting.ready(two).await, [second]);
    let filter = DeliveryFilter {
        event: Some(setting.look(second).await.event),
        ..DeliveryFilter::default()
    };
    let page = setting
        .store
        .deliveries(setting.tenant, filter, Listing::newest(10))
        .await
        .expect("answers");
    assert_eq!(page.items.iter().map(|d| d.id).collect::<Vec<_>>(), [second]);
    setting.record(second, delivered(), at(50)).await;
    assert_eq!(prune(&setting.store, 50).await, 0);
    assert_eq!(prune(&setting.store, 51).await, 1);
}

/// Also what a deleted subscription left behind can go, before it is swept and after.
pub async fn deliveries_of_deleted_subscriptions_can_be_forgotten(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let first = setting.publish_in(subscription, whole()).await;
    let second = setting.publish_in(subscription, whole()).await;
    setting.unsubscribe(subscription, at(5)).await;
    let moved = forget(&setting, first, 9).await.expect("forgotten");
    assert_eq!(moved.ready, None, "nobody goes on for somebody who left");
    let unsubscribed = DeliveryState::Cancelled(CancelReason::Unsubscribed);
    assert_eq!((moved.delivery.state, moved.delivery.ended_at), (unsubscribed, Some(at(5))));
    assert_eq!(moved.recall, None, "it had ended, so nobody holds it");
    is_gone(&setting, first).await;
    setting.store.sweep_cancelled(100, at(10)).await.expect("swept");
    assert_eq!(setting.look(second).await.state, unsubscribed);
    forget(&setting, second, 11).await.expect("forgotten");
    is_gone(&setting, second).await;
}

/// It is durable, and the place in the order of a forgotten delivery is never given out again.
pub async fn forgetting_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let seq = setting.look(id).await.seq;
    forget(&setting, id, 9).await.expect("forgotten");
    let setting = setting.reopen(fixture).await;
    is_gone(&setting, id).await;
    let next = setting.publish(&[(subscription, None)]).await;
    assert!(next.placed[0].seq > seq, "{} after {seq}", next.placed[0].seq);
}
