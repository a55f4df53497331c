//! Cases about cancelling and retrying by hand.

use posthorn_domain::{CancelReason, DeliveryId, DeliveryState};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, dropped, failed, whole};
use super::changes::refused;
use posthorn_store::{Moved, Refusal, Result};

async fn cancel(setting: &Setting, id: DeliveryId, when: i64) -> Result<Moved> {
    setting.store.cancel_delivery(setting.tenant, id, at(when)).await
}

async fn retry(setting: &Setting, id: DeliveryId, when: i64) -> Result<Moved> {
    setting.store.retry_delivery(setting.tenant, id, at(when)).await
}

/// An operator's word ends a delivery.
pub async fn cancel_ends_a_pending_delivery(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, failed(at(50)), at(5)).await;
    let moved = cancel(&setting, id, 9).await.expect("cancel");
    assert_eq!(moved.ready, None);
    assert_eq!(moved.delivery.state, DeliveryState::Cancelled(CancelReason::Operator));
    assert_eq!((moved.delivery.ended_at, moved.delivery.attempts), (Some(at(9)), 1));
    assert_eq!(setting.look(id).await, moved.delivery);
    assert!(setting.ready(subscription).await.is_empty());
}

/// What has ended cannot be cancelled.
pub async fn cancel_of_an_ended_delivery_is_refused(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for end in [delivered(), dead_skip(), dropped()] {
        let id = setting.publish_one(subscription).await;
        setting.record(id, end, at(5)).await;
        let before = setting.look(id).await;
        refused(cancel(&setting, id, 9).await, Refusal::Ended);
        assert_eq!(setting.look(id).await, before);
    }
    let id = setting.publish_one(subscription).await;
    cancel(&setting, id, 9).await.expect("cancel");
    refused(cancel(&setting, id, 10).await, Refusal::Ended);
}

/// A dead letter comes back with a fresh budget; attempts and numbers go on.
pub async fn retry_gives_a_fresh_budget_and_keeps_history(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, failed(at(20)), at(10)).await;
    setting.record(id, dead_skip(), at(20)).await;
    let moved = retry(&setting, id, 90).await.expect("retry");
    let now = &moved.delivery;
    assert_eq!((now.state, now.due_at, now.ended_at), (DeliveryState::Pending, at(90), None));
    assert_eq!((now.attempts, now.budget_base, now.spent()), (2, 2, 0));
    assert_eq!((now.budget_began, now.created_at), (at(90), at(0)));
    assert_eq!(setting.look(id).await, moved.delivery);
    let work = moved.ready.expect("it is due");
    assert_eq!((&work.delivery, work.event.id), (now, now.event));
    assert_eq!(setting.ready(subscription).await, [id]);
    setting.record(id, delivered(), at(95)).await;
    let attempts = setting.store.attempts(setting.tenant, id).await.expect("attempts");
    assert_eq!(attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(setting.look(id).await.attempts, 3);
}

/// Delivered and cancelled ones can be sent again, too.
pub async fn retry_works_on_every_ended_state(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for end in [delivered(), dead_skip(), dropped()] {
        let id = setting.publish_one(subscription).await;
        setting.record(id, end, at(5)).await;
        let moved = retry(&setting, id, 9).await.expect("retry");
        assert_eq!(moved.delivery.state, DeliveryState::Pending);
        setting.record(id, delivered(), at(10)).await;
    }
    let id = setting.publish_one(subscription).await;
    cancel(&setting, id, 9).await.expect("cancel");
    retry(&setting, id, 10).await.expect("retry");
    assert_eq!(setting.ready(subscription).await, [id]);
}

/// What waits for its time is due at once, with a fresh budget; it stays the same delivery.
pub async fn retry_of_a_waiting_delivery_makes_it_due_with_a_fresh_budget(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, failed(at(50_000)), at(5)).await;
    let before = setting.look(id).await;
    assert!(setting.pending(subscription, at(49_999)).await.is_empty());
    let moved = retry(&setting, id, 9).await.expect("retry");
    let now = &moved.delivery;
    assert_eq!((now.state, now.due_at, now.ended_at), (DeliveryState::Pending, at(9), None));
    assert_eq!((now.attempts, now.budget_base, now.budget_began), (1, 1, at(9)));
    assert_eq!((now.seq, now.created_at), (before.seq, before.created_at));
    assert_eq!(setting.look(id).await, *now);
    assert_eq!(moved.ready.expect("it is due").delivery, *now);
    let due = setting.pending(subscription, at(9)).await;
    assert_eq!(due.iter().map(|work| work.delivery.id).collect::<Vec<_>>(), [id], "once");
    setting.record(id, delivered(), at(10)).await;
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.look(id).await.attempts, 2);
}

/// A head stays the head, and who is parked behind it stays parked, with a fresh budget.
pub async fn retry_of_a_waiting_delivery_keeps_its_place_in_the_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let second = setting.publish_in(subscription, whole()).await;
    let third = setting.publish_in(subscription, whole()).await;
    setting.record(head, failed(at(500)), at(5)).await;
    let parked = retry(&setting, third, 9).await.expect("retry");
    assert_eq!(parked.ready, None);
    assert!(parked.delivery.is_parked());
    assert_eq!(parked.delivery.budget_began, at(9));
    assert_eq!(setting.look(third).await, parked.delivery);
    let first = retry(&setting, head, 10).await.expect("retry");
    assert_eq!(first.ready.map(|work| work.delivery.id), Some(head));
    assert_eq!(setting.ready(subscription).await, [head], "nobody else heads the lane");
    for (id, next) in [(head, Some(second)), (second, Some(third)), (third, None)] {
        let promoted = setting.record(id, delivered(), at(20)).await;
        assert_eq!(promoted.map(|work| work.delivery.id), next);
    }
}

/// While a lease says that an attempt is under way nothing is done; once it has run out, it may be.
pub async fn retry_under_a_living_lease_is_refused(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.lease(id, at(500)).await;
    let before = setting.look(id).await;
    refused(retry(&setting, id, 499).await, Refusal::NotEnded);
    assert_eq!(setting.look(id).await, before);
    let moved = retry(&setting, id, 500).await.expect("retry");
    assert_eq!((moved.delivery.state, moved.delivery.due_at), (DeliveryState::Pending, at(500)));
    assert_eq!(setting.ready(subscription).await, [id]);
}

/// The attempt of a cancelled head may still arrive, so the next waits until it cannot any more.
pub async fn cancelled_attempt_under_way_holds_its_lane_until_the_lease_ends(
    fixture: &dyn Fixture,
) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for (when, due) in [(9, 500), (600, 600)] {
        let head = setting.publish_in(subscription, whole()).await;
        let next = setting.publish_in(subscription, whole()).await;
        setting.lease(head, at(500)).await;
        let moved = cancel(&setting, head, when).await.expect("cancel");
        let ready = moved.ready.expect("the next goes on");
        assert_eq!((ready.delivery.id, ready.delivery.due_at), (next, at(due)));
        assert_eq!(setting.look(next).await.due_at, at(due));
        assert!(setting.pending(subscription, at(due - 1)).await.is_empty());
        setting.record(next, delivered(), at(700)).await;
    }
}

/// Without its subscription a delivery cannot come back, swept or not.
pub async fn retry_without_subscription_is_refused(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let ended = setting.publish_one(subscription).await;
    let open = setting.publish_one(subscription).await;
    setting.record(ended, dead_skip(), at(5)).await;
    setting.unsubscribe(subscription, at(6)).await;
    for _ in 0..2 {
        for id in [ended, open] {
            refused(retry(&setting, id, 9).await, Refusal::NotFound);
        }
        setting.store.sweep_cancelled(10, at(7)).await.expect("sweep");
    }
    refused(cancel(&setting, open, 9).await, Refusal::Ended);
}

/// Another tenant's delivery looks as if it did not exist.
pub async fn foreign_deliveries_are_not_found(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let subscription = setting.subscribe().await;
    let open = setting.publish_one(subscription).await;
    let ended = setting.publish_one(subscription).await;
    setting.record(ended, dead_skip(), at(5)).await;
    let unknown = DeliveryId::new(at(0), u128::MAX);
    refused(setting.store.cancel_delivery(other, open, at(9)).await, Refusal::NotFound);
    refused(setting.store.retry_delivery(other, ended, at(9)).await, Refusal::NotFound);
    refused(cancel(&setting, unknown, 9).await, Refusal::NotFound);
    refused(retry(&setting, unknown, 9).await, Refusal::NotFound);
    assert_eq!(setting.ready(subscription).await, [open]);
}

/// What an operator did is there after a crash.
pub async fn moves_survive_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let (a, b) = (setting.publish_one(subscription).await, setting.publish_one(subscription).await);
    setting.record(b, dead_skip(), at(5)).await;
    let cancelled = cancel(&setting, a, 9).await.expect("cancel").delivery;
    let retried = retry(&setting, b, 9).await.expect("retry").delivery;
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.look(a).await, cancelled);
    assert_eq!(setting.look(b).await, retried);
}
