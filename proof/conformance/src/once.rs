//! Cases about deliveries that are tried once.

use posthorn_domain::{Budget, DeliveryId, DeliveryState, JobWork, ReplayStatus};
use posthorn_store::{DeliveryFilter, Listing};

use super::Fixture;
use super::builders::{Setting, at, dead_skip, delivered, failed, whole};
use super::jobs::{advance, bite, job, redelivery};

async fn once(setting: &Setting, id: DeliveryId, when: i64) -> posthorn_store::Moved {
    let moved = setting.store.retry_delivery_once(setting.tenant, id, at(when)).await;
    moved.expect("allowed")
}

/// Until somebody brings it back again; whoever reads it sees it, live and ended, also after a crash.
pub async fn one_attempt_is_stored_with_the_delivery(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, failed(at(20)), at(10)).await;
    setting.record(id, dead_skip(), at(20)).await;
    assert_eq!(setting.look(id).await.budget, Budget::Fresh);
    let moved = once(&setting, id, 90).await;
    let now = moved.delivery;
    assert_eq!((now.state, now.due_at, now.ended_at), (DeliveryState::Pending, at(90), None));
    assert_eq!((now.budget, now.attempts, now.budget_base), (Budget::Once, 2, 2));
    assert_eq!(now.budget_began, at(90));
    assert_eq!(moved.ready.expect("it is due").delivery, now);
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.look(id).await, now);
    assert_eq!(setting.pending(subscription, at(90)).await[0].delivery, now);
    let listed =
        setting.store.deliveries(setting.tenant, DeliveryFilter::default(), Listing::newest(5));
    assert_eq!(listed.await.expect("a list").items, [now]);
    setting.record(id, dead_skip(), at(95)).await;
    let ended = setting.look(id).await;
    assert_eq!((ended.budget, ended.attempts, ended.spent()), (Budget::Once, 3, 1));
    let back = setting.store.retry_delivery(setting.tenant, id, at(99)).await.expect("allowed");
    assert_eq!((back.delivery.budget, back.delivery.budget_base), (Budget::Fresh, 3));
    assert_eq!(setting.look(id).await, back.delivery);
    setting.record(id, delivered(), at(100)).await;
    assert_eq!(setting.look(id).await.state, DeliveryState::Delivered);
}

/// It is due at once, and its schedule goes on afterwards.
pub async fn one_attempt_of_a_waiting_delivery_keeps_its_budget(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    setting.record(id, failed(at(50_000)), at(5)).await;
    let before = setting.look(id).await;
    let moved = once(&setting, id, 9).await;
    assert!(moved.recall.is_some(), "copies are out of date");
    let now = setting.look(id).await;
    assert_eq!(now, moved.delivery);
    assert_eq!((now.due_at, now.revival), (at(9), before.revival + 1));
    assert_eq!((now.budget, now.budget_base), (Budget::Fresh, 0));
    assert_eq!((now.budget_began, now.spent()), (before.budget_began, 1));
    // The same of one that has a single attempt anyway.
    setting.record(id, dead_skip(), at(10)).await;
    once(&setting, id, 11).await;
    let again = once(&setting, id, 12).await.delivery;
    assert_eq!((again.budget, again.budget_base, again.budget_began), (Budget::Once, 2, at(11)));
    assert_eq!(setting.look(id).await, again);
}

/// In its lane it comes back to its place, like any other.
pub async fn one_attempt_waits_for_its_turn(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let head = setting.publish_in(subscription, whole()).await;
    let second = setting.publish_in(subscription, whole()).await;
    setting.record(head, dead_skip(), at(5)).await;
    let moved = once(&setting, head, 9).await;
    assert_eq!(moved.ready.map(|work| work.delivery.budget), Some(Budget::Once));
    assert!(setting.look(second).await.is_parked(), "it has to wait");
    let promoted = setting.record(head, dead_skip(), at(10)).await;
    let promoted = promoted.expect("the next goes on").delivery;
    assert_eq!((promoted.id, promoted.budget), (second, Budget::Fresh));
    setting.record(second, dead_skip(), at(11)).await;
    // Parked ones keep it too.
    once(&setting, head, 20).await;
    let parked = once(&setting, second, 21).await.delivery;
    assert!(parked.is_parked());
    let promoted = setting.record(head, delivered(), at(22)).await.expect("the next");
    assert_eq!((promoted.delivery.id, promoted.delivery.budget), (second, Budget::Once));
}

/// Both what is tried again and what is made for the first time.
pub async fn jobs_say_how_often_is_tried(fixture: &dyn Fixture) {
    for budget in [Budget::Once, Budget::Fresh] {
        let setting = Setting::new(fixture).await;
        let (old, new) = (setting.subscribe().await, setting.subscribe().await);
        let published = setting.publish(&[(old, None)]).await;
        let event = published.event.id;
        setting.record(published.deliveries[0], dead_skip(), at(5)).await;
        let mut job = job(setting.tenant);
        job.work = JobWork::Deliver { event, subscription: new, budget };
        setting.store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
        let stored = setting.store.job(setting.tenant, job.id).await.expect("answers");
        assert_eq!(stored.expect("it").work, job.work);
        let made = redelivery(event, new, ReplayStatus::All);
        let deeds = vec![redelivery(event, old, ReplayStatus::All), made.clone()];
        assert_eq!(advance(&setting, bite(&job, None, 1, deeds)).await.done, 2);
        let setting = setting.reopen(fixture).await;
        let (again, first) =
            (setting.look(published.deliveries[0]).await, setting.look(made.id).await);
        assert_eq!((again.budget, again.budget_base, again.spent()), (budget, 1, 0));
        assert_eq!((first.budget, first.budget_base, first.spent()), (budget, 0, 0));
        setting.record(made.id, dead_skip(), at(2_000)).await;
        assert_eq!(setting.look(made.id).await.budget, budget);
    }
}
