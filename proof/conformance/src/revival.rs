//! Cases about deliveries that come back: their place in a lane, and copies that are out of date.

use posthorn_domain::{CatalogVersion, Delivery, DeliveryId, DeliveryState, RedriveState};

use super::Fixture;
use super::builders::{Setting, at, dead_block, dead_skip, delivered, failed, redrive, whole};
use super::redrive::create;
use posthorn_store::{Claim, Moved, Prune, Recall, Recorded};

async fn retry(setting: &Setting, id: DeliveryId, when: i64) -> Moved {
    let moved = setting.store.retry_delivery(setting.tenant, id, at(when)).await;
    moved.expect("it is retried")
}

/// So many in one lane; the first `dead` of them are dead letters.
async fn lane(setting: &Setting, count: usize, dead: usize) -> Vec<DeliveryId> {
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(setting.publish_in(subscription, whole()).await);
    }
    for id in &ids[..dead] {
        setting.record(*id, dead_skip(), at(5)).await;
    }
    ids
}

async fn ready(setting: &Setting, member: DeliveryId) -> Vec<DeliveryId> {
    let subscription = setting.look(member).await.subscription;
    setting.ready(subscription).await
}

/// Delivers what heads the lane, again and again; in which order that was.
async fn drain(setting: &Setting, member: DeliveryId) -> Vec<DeliveryId> {
    let mut order = Vec::new();
    loop {
        let heads = ready(setting, member).await;
        assert!(heads.len() <= 1, "a lane has one head, not {heads:?}");
        let Some(head) = heads.first() else { return order };
        setting.record(*head, delivered(), at(1_000)).await;
        order.push(*head);
    }
}

async fn version(setting: &Setting) -> CatalogVersion {
    setting.store.catalog_since(CatalogVersion(0)).await.expect("a delta").version
}

async fn recalls(setting: &Setting, since: CatalogVersion) -> Vec<Recall> {
    setting.store.catalog_since(since).await.expect("a delta").recalls
}

fn recall(delivery: &Delivery) -> Recall {
    let Delivery { subscription, id, revival, .. } = *delivery;
    Recall { subscription, delivery: id, revival }
}

/// What came later and has not been sent waits for what is brought back.
pub async fn revived_delivery_goes_before_what_came_later(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 3, 1).await;
    assert_eq!(ready(&setting, ids[0]).await, [ids[1]]);
    let moved = retry(&setting, ids[0], 9).await;
    assert_eq!(moved.ready.map(|work| work.delivery.id), Some(ids[0]));
    assert_eq!((moved.delivery.due_at, moved.delivery.revival), (at(9), 1));
    let waits = setting.look(ids[1]).await;
    assert!(waits.is_parked());
    assert_eq!((waits.state, waits.attempts, waits.revival), (DeliveryState::Pending, 0, 1));
    assert_eq!(drain(&setting, ids[0]).await, ids);
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.look(ids[1]).await.revival, 1);
}

/// Who had to wait is tried no sooner than it would have been.
pub async fn displaced_head_keeps_its_time_and_its_budget(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 3, 1).await;
    setting.record(ids[1], failed(at(5_000)), at(7)).await;
    let before = setting.look(ids[1]).await;
    retry(&setting, ids[0], 9).await;
    let setting = setting.reopen(fixture).await;
    let next = setting.record(ids[0], delivered(), at(20)).await.expect("the next goes on");
    assert_eq!((next.delivery.id, next.delivery.due_at), (ids[1], at(5_000)));
    assert_eq!(next.delivery, Delivery { revival: 1, ..before });
    assert_eq!(setting.look(ids[1]).await, next.delivery);
    // A retry by hand while it waits makes it due as soon as it is its turn.
    retry(&setting, ids[0], 30).await;
    retry(&setting, ids[1], 40).await;
    let next = setting.record(ids[0], delivered(), at(50)).await.expect("the next goes on");
    assert_eq!((next.delivery.id, next.delivery.due_at), (ids[1], at(50)));
    assert_eq!(drain(&setting, ids[1]).await, ids[1..]);
}

/// An attempt under a written lease is not overtaken; what comes back is next.
pub async fn revived_delivery_waits_for_a_leased_head(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 3, 1).await;
    setting.lease(ids[1], at(500)).await;
    let moved = retry(&setting, ids[0], 9).await;
    assert!(moved.delivery.is_parked());
    assert_eq!((moved.ready, moved.recall), (None, None));
    assert_eq!(setting.look(ids[1]).await.state, DeliveryState::InFlight);
    assert_eq!(drain(&setting, ids[0]).await, [ids[1], ids[0], ids[2]]);
}

/// A blocked lane stays blocked.
pub async fn revived_delivery_waits_in_a_blocked_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 3, 1).await;
    setting.record(ids[1], dead_block(), at(7)).await;
    let moved = retry(&setting, ids[0], 9).await;
    assert!(moved.delivery.is_parked());
    assert!(ready(&setting, ids[0]).await.is_empty());
    let freed = setting.store.cancel_delivery(setting.tenant, ids[1], at(10)).await;
    let freed = freed.expect("cancel");
    assert_eq!(freed.ready.map(|work| work.delivery.id), Some(ids[0]));
    assert_eq!(freed.recall, None, "nobody holds a copy of a dead letter");
    assert_eq!(drain(&setting, ids[0]).await, [ids[0], ids[2]]);
}

/// When the blocker comes back, those that came back before it, and had to wait, still go first.
pub async fn revived_blocker_goes_behind_those_before_it(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 4, 1).await;
    setting.record(ids[1], dead_block(), at(7)).await;
    assert!(retry(&setting, ids[0], 9).await.delivery.is_parked());
    let moved = retry(&setting, ids[1], 10).await;
    assert!(moved.delivery.is_parked());
    let ready = moved.ready.expect("the first goes on").delivery;
    assert_eq!((ready.id, ready.due_at), (ids[0], at(10)));
    assert_eq!(setting.look(ids[0]).await, ready);
    assert_eq!(moved.recall, None, "nobody held either");
    assert_eq!(drain(&setting, ids[0]).await, ids);

    // However many come back at once.
    for bite in [1, 10] {
        let ids = lane(&setting, 4, 1).await;
        setting.record(ids[1], dead_block(), at(7)).await;
        let stored = create(&setting, redrive(setting.tenant, at(100))).await;
        let mut state = RedriveState::Running;
        while state == RedriveState::Running {
            let bite = setting.store.advance_redrive(stored.id, bite, at(110), None).await;
            state = bite.expect("advance").state;
        }
        assert!(setting.look(ids[1]).await.is_parked());
        assert_eq!(drain(&setting, ids[0]).await, ids);
    }
}

/// Who has to wait makes room for the first of all that wait, not for the last one that came back.
pub async fn displaced_head_makes_room_for_the_first(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 4, 2).await;
    setting.lease(ids[2], at(500)).await;
    assert!(retry(&setting, ids[0], 9).await.delivery.is_parked());
    setting.record(ids[2], failed(at(5_000)), at(10)).await;
    let moved = retry(&setting, ids[1], 11).await;
    assert!(moved.delivery.is_parked() && moved.recall.is_some());
    assert_eq!(moved.ready.map(|work| work.delivery.id), Some(ids[0]));
    assert!(setting.look(ids[2]).await.is_parked());
    assert_eq!(drain(&setting, ids[0]).await, ids);
}

/// Among each other they keep the order in which they were accepted, however they come back.
pub async fn revived_deliveries_keep_their_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 5, 3).await;
    for id in [ids[2], ids[0], ids[1]] {
        retry(&setting, id, 9).await;
    }
    assert_eq!(drain(&setting, ids[0]).await, ids);

    let ids = lane(&setting, 5, 3).await;
    let stored = create(&setting, redrive(setting.tenant, at(100))).await;
    let mut state = RedriveState::Running;
    while state == RedriveState::Running {
        let bite =
            setting.store.advance_redrive(stored.id, 2, at(110), None).await.expect("advance");
        assert_eq!(ready(&setting, ids[0]).await, [ids[0]]);
        state = bite.state;
    }
    assert_eq!(drain(&setting, ids[0]).await, ids);
}

/// The attempt of a head that has to wait now counts when the receiver has it, and not otherwise.
pub async fn attempt_of_a_displaced_head_counts_when_it_arrives(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ids = lane(&setting, 3, 1).await;
    let failure = setting.report(ids[1], failed(at(5_000)), at(10)).await;
    let success = setting.report(ids[1], delivered(), at(11)).await;
    retry(&setting, ids[0], 9).await;
    assert_eq!(setting.record_one(failure).await, Recorded::Superseded);
    let waits = setting.look(ids[1]).await;
    assert!(waits.is_parked() && waits.attempts == 0);
    assert_eq!(setting.record_one(success).await, Recorded::Written { promoted: None });
    assert_eq!(setting.look(ids[1]).await.state, DeliveryState::Delivered);
    assert_eq!(drain(&setting, ids[0]).await, [ids[0], ids[2]]);

    // Both ends in one batch, in either order: nobody is promoted who has ended.
    for swapped in [false, true] {
        let ids = lane(&setting, 3, 1).await;
        let second = setting.report(ids[1], delivered(), at(11)).await;
        retry(&setting, ids[0], 9).await;
        let first = setting.report(ids[0], delivered(), at(12)).await;
        let batch = if swapped { vec![second, first] } else { vec![first, second] };
        let answers = setting.store.record(batch).await.expect("record");
        assert!(answers.iter().all(|a| matches!(a, Recorded::Written { .. })), "{answers:?}");
        assert_eq!(setting.look(ids[1]).await.state, DeliveryState::Delivered);
        assert_eq!(drain(&setting, ids[0]).await, [ids[2]]);
    }
}

/// What was read before a retry by hand neither leases nor ends the delivery.
pub async fn copies_from_before_a_retry_change_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    for cancelled in [false, true] {
        let id = setting.publish_one(subscription).await;
        let old = setting.look(id).await;
        let failure = setting.report(id, dead_skip(), at(20)).await;
        let success = setting.report(id, delivered(), at(21)).await;
        if cancelled {
            let moved = setting.store.cancel_delivery(setting.tenant, id, at(9)).await;
            assert_eq!(moved.expect("cancel").delivery.revival, 1);
        }
        let moved = retry(&setting, id, 10).await;
        assert!(moved.delivery.revival > old.revival);
        assert_eq!(setting.look(id).await, moved.delivery);
        let claim = Claim {
            fence: setting.fence(subscription),
            delivery: id,
            expected_attempts: 0,
            expected_revival: old.revival,
            until: at(500),
        };
        assert_eq!(setting.store.claim(vec![claim]).await.expect("an answer"), [false]);
        assert_eq!(setting.record_one(failure).await, Recorded::Superseded);
        assert_eq!(setting.look(id).await, moved.delivery);
        assert_eq!(setting.record_one(success).await, Recorded::Written { promoted: None });
        assert_eq!(setting.look(id).await.state, DeliveryState::Delivered);
    }
}

/// Whose copies are out of date is told with the catalog, to those who may hold any.
pub async fn recalls_are_told_with_the_catalog(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let ids = lane(&setting, 3, 1).await;
    let (a, b) = (setting.publish_one(subscription).await, setting.publish_one(subscription).await);
    let ended = setting.publish_one(subscription).await;
    setting.record(ended, dead_skip(), at(5)).await;
    let start = version(&setting).await;
    assert_eq!(retry(&setting, ended, 9).await.recall, None, "nobody held it");
    assert_eq!(version(&setting).await, start);

    let cancelled = setting.store.cancel_delivery(setting.tenant, a, at(10)).await.expect("cancel");
    let hastened = retry(&setting, b, 11).await;
    retry(&setting, ids[0], 12).await;
    let displaced = setting.look(ids[1]).await;
    let forgotten = setting.store.forget_delivery(setting.tenant, b, at(13)).await.expect("forget");
    assert!(forgotten.delivery.revival > hastened.delivery.revival);
    let versions = [cancelled.recall, hastened.recall, forgotten.recall];
    assert!(versions.iter().all(|v| v.is_some_and(|v| v > start)), "{versions:?}");
    assert!(versions.is_sorted());
    let told = [&cancelled.delivery, &hastened.delivery, &displaced, &forgotten.delivery];
    let told: Vec<Recall> = told.into_iter().map(recall).collect();
    assert_eq!(recalls(&setting, start).await, told);
    assert_eq!(version(&setting).await, forgotten.recall.expect("a version"));
    let since = hastened.recall.expect("a version");
    assert_eq!(recalls(&setting, since).await, told[2..]);
    let delta = setting.store.catalog_since(start).await.expect("a delta");
    assert!(delta.tenants.is_empty(), "no plan gets stale");
    assert!(recalls(&setting, CatalogVersion(0)).await.is_empty(), "who begins holds nothing");

    let setting = setting.reopen(fixture).await;
    assert_eq!(recalls(&setting, start).await, told);
    let prune = Prune {
        now: at(0),
        ended_before: at(0),
        dead_before: at(0),
        keys_before: at(0),
        recalls_before: at(12),
        audit_before: at(12),
        limit: 100,
    };
    setting.store.prune(prune).await.expect("prune");
    assert_eq!(recalls(&setting, start).await, told[2..]);
}
