//! Cases about questions, but for lists and their filters.

use posthorn_domain::{DeliveryId, TenantId};

use super::Fixture;
use super::builders::{
    Setting, at, dead_block, dead_skip, delivered, dropped, failed, redrive, whole,
};
use posthorn_store::{AttemptFilter, Counts, DeliveryFilter, EventFilter, Listing, Prune};

/// What belongs to one tenant is invisible to the others.
pub async fn tenants_do_not_see_each_other(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let subscription = setting.subscribe().await;
    let published = setting.publish(&[(subscription, None)]).await;
    let id = published.deliveries[0];
    setting.record(id, delivered(), at(1)).await;
    let store = &setting.store;
    for stranger in [other, TenantId::new(at(0), u128::MAX)] {
        assert_eq!(store.event(stranger, published.event.id).await.expect("a lookup"), None);
        assert_eq!(store.delivery(stranger, id).await.expect("a lookup"), None);
        assert!(store.attempts(stranger, id).await.expect("attempts").is_empty());
        let newest = Listing::newest(10);
        let filter = EventFilter::default();
        assert!(store.events(stranger, filter, newest).await.expect("a page").items.is_empty());
        let (event, to) = (Some(published.event.id), Some(subscription));
        for (event, subscription) in [(None, None), (event, None), (None, to), (event, to)] {
            let filter = DeliveryFilter { event, subscription, ..DeliveryFilter::default() };
            let page = store.deliveries(stranger, filter, newest).await.expect("a page");
            assert!(page.items.is_empty());
            let filter = AttemptFilter { event, subscription, ..AttemptFilter::default() };
            let page = store.attempts_made(stranger, filter, newest).await.expect("a page");
            assert!(page.items.is_empty());
        }
        assert_eq!(store.counts(Some(stranger)).await.expect("counts"), Counts::default());
    }
    assert_eq!(store.counts(Some(setting.tenant)).await.expect("counts").delivered, 1);
}

async fn conserved(setting: &Setting, expected: [u64; 4], step: &str) {
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    let seen = [counts.pending, counts.delivered, counts.dead, counts.cancelled];
    assert_eq!(seen, expected, "pending, delivered, dead, cancelled after {step}");
    assert_eq!(setting.store.counts(None).await.expect("counts"), counts, "after {step}");
}

/// Accepted = pending + delivered + dead + cancelled, after every kind of operation.
pub async fn counts_are_conserved(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let store = &setting.store;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    conserved(&setting, [0, 0, 0, 0], "nothing").await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.extend(setting.publish(&[(a, None), (b, whole())]).await.deliveries);
    }
    conserved(&setting, [10, 0, 0, 0], "accept").await;
    setting.record(ids[0], delivered(), at(1)).await;
    setting.record(ids[2], failed(at(9)), at(1)).await;
    conserved(&setting, [9, 1, 0, 0], "delivered and failed").await;
    setting.record(ids[2], dead_skip(), at(9)).await;
    setting.record(ids[1], dead_block(), at(9)).await;
    conserved(&setting, [7, 1, 2, 0], "dead").await;
    setting.record(ids[4], dropped(), at(9)).await;
    store.cancel_delivery(setting.tenant, ids[6], at(10)).await.expect("cancel");
    conserved(&setting, [5, 1, 2, 2], "cancelled").await;
    store.cancel_delivery(setting.tenant, ids[1], at(10)).await.expect("cancel");
    conserved(&setting, [5, 1, 1, 3], "a cancelled dead letter").await;
    store.retry_delivery(setting.tenant, ids[0], at(11)).await.expect("retry");
    conserved(&setting, [6, 0, 1, 3], "retry").await;
    let stored = store.create_redrive(redrive(setting.tenant, at(50))).await.expect("create");
    store.advance_redrive(stored.id, 10, at(60), None).await.expect("advance");
    conserved(&setting, [7, 0, 0, 3], "redrive").await;
    setting.unsubscribe(b, at(70)).await;
    conserved(&setting, [3, 0, 0, 7], "unsubscribe").await;
    store.sweep_cancelled(3, at(80)).await.expect("sweep");
    conserved(&setting, [3, 0, 0, 7], "half a sweep").await;
    store.sweep_cancelled(10, at(80)).await.expect("sweep");
    conserved(&setting, [3, 0, 0, 7], "sweep").await;
    setting.record(ids[0], delivered(), at(81)).await;
    let prune = Prune {
        now: at(0),
        ended_before: at(1_000),
        dead_before: at(1_000),
        keys_before: at(0),
        recalls_before: at(0),
        audit_before: at(0),
        limit: 10,
    };
    let pruned = store.prune(prune).await.expect("prune");
    assert_eq!(pruned.events, 3, "the first, and those that were cancelled twice");
    conserved(&setting, [2, 0, 0, 2], "prune").await;
    assert_eq!(store.counts(None).await.expect("counts").events, 2);
}

/// Unfinished work by tenant: parked and in flight included, ended not.
pub async fn unfinished_deliveries_are_counted_by_tenant(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let pending = async |setting: &Setting, tenant| {
        let counts = setting.store.pending_by_tenant().await.expect("counts");
        counts.iter().find(|(counted, _)| *counted == tenant).map(|(_, count)| *count)
    };
    assert_eq!(pending(&setting, setting.tenant).await, None);
    let first = setting.publish_one(a).await;
    setting.publish_in(b, whole()).await;
    setting.publish_in(b, whole()).await;
    assert_eq!(pending(&setting, setting.tenant).await, Some(3));
    assert_eq!(pending(&setting, other).await, None);
    setting.record(first, delivered(), at(2)).await;
    assert_eq!(pending(&setting, setting.tenant).await, Some(2));
    setting.unsubscribe(b, at(3)).await;
    setting.store.sweep_cancelled(10, at(4)).await.expect("sweep");
    assert_eq!(pending(&setting, setting.tenant).await, None);
}

/// A store that works says so.
pub async fn ping_answers(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    setting.store.ping().await.expect("ping");
}

/// Several tenants are counted at once, in the order in which they are asked for; also such as there are not.
pub async fn tenants_are_counted_together(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let first = setting.publish_one(a).await;
    setting.publish_one(a).await;
    setting.publish_one(b).await;
    setting.record(first, delivered(), at(2)).await;
    // What waits for it is cancelled, swept or not.
    setting.unsubscribe(b, at(3)).await;
    let none = TenantId::new(at(1), 99);
    let asked = vec![other, setting.tenant, none, setting.tenant];
    let counts = setting.store.counts_by_tenant(asked.clone()).await.expect("counts");
    assert_eq!(counts.len(), 4);
    for (tenant, counts) in asked.iter().zip(&counts) {
        assert_eq!(*counts, setting.store.counts(Some(*tenant)).await.expect("counts"));
    }
    let own = counts[1];
    assert_eq!((own.events, own.pending, own.delivered, own.cancelled), (3, 1, 1, 1));
    assert!(setting.store.counts_by_tenant(Vec::new()).await.expect("counts").is_empty());
}

/// Several deliveries are read at once, as one by one; those that are not there, or not the tenant's, are left out.
pub async fn deliveries_are_read_together(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let mut ids = setting.publish(&[(a, None), (b, whole())]).await.deliveries;
    ids.extend(setting.publish(&[(a, None)]).await.deliveries);
    setting.record(ids[0], delivered(), at(2)).await;
    setting.unsubscribe(b, at(3)).await;
    let mut asked = ids.clone();
    asked.push(DeliveryId::new(at(0), u128::MAX));
    let store = &setting.store;
    let mut found = store.deliveries_by_id(setting.tenant, asked.clone()).await.expect("a list");
    found.sort_by_key(|delivery| delivery.id);
    let mut wanted = Vec::new();
    for id in &ids {
        wanted.push(setting.look(*id).await);
    }
    wanted.sort_by_key(|delivery| delivery.id);
    assert_eq!(found, wanted);
    assert!(store.deliveries_by_id(other, asked).await.expect("a list").is_empty());
    assert!(store.deliveries_by_id(setting.tenant, vec![]).await.expect("a list").is_empty());
}
