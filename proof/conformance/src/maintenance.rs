//! Cases about deliveries whose subscription is gone.

use posthorn_domain::{CancelReason, DeadReason, DeliveryState};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, failed, whole};
use posthorn_store::{DeliveryFilter, Listing, Recorded, StateKind};

const UNSUBSCRIBED: DeliveryState = DeliveryState::Cancelled(CancelReason::Unsubscribed);

/// From the moment a subscription is deleted, every read says that its work is cancelled.
pub async fn deleted_subscription_is_cancelled_at_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let plain = setting.publish_one(subscription).await;
    setting.publish_in(subscription, whole()).await;
    let parked = setting.publish_in(subscription, whole()).await;
    setting.unsubscribe(subscription, at(7)).await;
    for id in [plain, parked] {
        let seen = setting.look(id).await;
        assert_eq!((seen.state, seen.ended_at), (UNSUBSCRIBED, Some(at(7))));
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.cancelled), (0, 3));
    for (kind, expected) in [(StateKind::Pending, 0), (StateKind::Cancelled, 3)] {
        let filter = DeliveryFilter { state: Some(kind), ..DeliveryFilter::default() };
        let page = setting
            .store
            .deliveries(setting.tenant, filter, Listing::newest(10))
            .await
            .expect("a page");
        assert_eq!(page.items.len(), expected, "{kind:?}");
        assert!(page.items.iter().all(|delivery| delivery.state == UNSUBSCRIBED));
    }
    assert!(setting.ready(subscription).await.is_empty());
}

/// A sweep takes at most its limit and says whether there may be more.
pub async fn sweep_cancels_in_slices(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (kept, one, two) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let open = setting.publish_one(kept).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(setting.publish_one(one).await);
        ids.push(setting.publish_in(two, whole()).await);
    }
    setting.unsubscribe(one, at(7)).await;
    setting.unsubscribe(two, at(8)).await;
    let first = setting.store.sweep_cancelled(2, at(9)).await.expect("sweep");
    assert_eq!((first.cancelled, first.more), (2, true));
    let mut cancelled = first.cancelled;
    for _ in 0..10 {
        let next = setting.store.sweep_cancelled(2, at(9)).await.expect("sweep");
        assert!(next.cancelled <= 2);
        cancelled += next.cancelled;
        if !next.more {
            break;
        }
    }
    assert_eq!(cancelled, 6);
    for id in ids {
        assert_eq!(setting.look(id).await.state, UNSUBSCRIBED);
        assert!(setting.look(id).await.ended_at.is_some());
    }
    assert_eq!(setting.ready(kept).await, [open]);
    let setting = setting.reopen(fixture).await;
    let last = setting.store.sweep_cancelled(2, at(10)).await.expect("sweep");
    assert_eq!((last.cancelled, last.more), (0, false));
}

/// Nothing to do is not an error.
pub async fn sweep_without_work_does_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    setting.publish_one(subscription).await;
    let swept = setting.store.sweep_cancelled(10, at(9)).await.expect("sweep");
    assert_eq!((swept.cancelled, swept.more), (0, false));
}

/// An attempt that was under way when its subscription was deleted is kept, and changes nothing.
pub async fn late_result_for_a_deleted_subscription_is_superseded(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let record = setting.report(id, delivered(), at(20)).await;
    setting.unsubscribe(subscription, at(7)).await;
    for _ in 0..2 {
        assert_eq!(setting.record_one(record.clone()).await, Recorded::Superseded);
        assert_eq!(setting.look(id).await.state, UNSUBSCRIBED);
        setting.store.sweep_cancelled(10, at(30)).await.expect("sweep");
    }
    let attempts = setting.store.attempts(setting.tenant, id).await.expect("attempts");
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].late);
}

/// What had ended before keeps its end.
pub async fn ended_deliveries_of_deleted_subscriptions_stay(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let done = setting.publish_one(subscription).await;
    let dead = setting.publish_one(subscription).await;
    let open = setting.publish_one(subscription).await;
    setting.record(done, delivered(), at(5)).await;
    setting.record(dead, dead_skip(), at(5)).await;
    setting.record(open, failed(at(50)), at(5)).await;
    setting.unsubscribe(subscription, at(7)).await;
    let swept = setting.store.sweep_cancelled(10, at(9)).await.expect("sweep");
    assert_eq!(swept.cancelled, 1);
    assert_eq!(setting.look(done).await.state, DeliveryState::Delivered);
    assert_eq!(setting.look(dead).await.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!(setting.look(open).await.state, UNSUBSCRIBED);
    assert_eq!(setting.look(open).await.attempts, 1);
}
