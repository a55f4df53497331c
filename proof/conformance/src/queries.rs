//! Cases about questions.

use std::sync::Arc;

use posthorn_domain::{Event, EventId, EventType, TenantId, TopicName};

use super::Fixture;
use super::builders::{
    Setting, at, dead_block, dead_skip, delivered, dropped, event, failed, redrive, whole,
};
use posthorn_store::{Counts, DeliveryFilter, EventFilter, NewEvent, Prune, StateKind};

async fn events(setting: &Setting, filter: EventFilter) -> (Vec<EventId>, bool) {
    let page = setting.store.events(setting.tenant, filter).await.expect("a page");
    (page.items.iter().map(|event| event.id).collect(), page.more)
}

/// Newest first, `before` goes on, `more` tells.
pub async fn events_come_in_pages(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(setting.publish(&[]).await.event.id);
    }
    ids.reverse();
    let page = |before, limit| EventFilter { before, limit, ..EventFilter::default() };
    assert_eq!(events(&setting, page(None, 2)).await, (ids[..2].to_vec(), true));
    assert_eq!(events(&setting, page(Some(ids[1]), 2)).await, (ids[2..4].to_vec(), true));
    assert_eq!(events(&setting, page(Some(ids[3]), 2)).await, (ids[4..].to_vec(), false));
    assert_eq!(events(&setting, page(None, 5)).await, (ids.clone(), false));
    assert_eq!(events(&setting, page(Some(ids[4]), 5)).await, (vec![], false));
}

/// By topic and type.
pub async fn events_can_be_filtered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let name = |text: &str| TopicName::new(text).expect("a proper name");
    let kind = |text: &str| EventType::new(text).expect("a proper type");
    let mut all = Vec::new();
    for (topic, event_type) in [("a", "x"), ("a", "y"), ("b", "x")] {
        let made =
            Event { topic: name(topic), event_type: kind(event_type), ..event(setting.tenant) };
        let new = NewEvent { event: Arc::new(made.clone()), ..setting.planned(vec![]).await };
        setting.accept(new).await;
        all.push(made);
    }
    let filter = |topic: Option<&str>, event_type: Option<&str>| EventFilter {
        topic: topic.map(name),
        event_type: event_type.map(kind),
        before: None,
        limit: 10,
    };
    let (ids, _) = events(&setting, filter(Some("a"), None)).await;
    assert_eq!(ids, [all[1].id, all[0].id]);
    let (ids, _) = events(&setting, filter(None, Some("x"))).await;
    assert_eq!(ids, [all[2].id, all[0].id]);
    let (ids, more) = events(&setting, filter(Some("b"), Some("y"))).await;
    assert!(ids.is_empty() && !more);
    let filter = filter(Some("b"), Some("x"));
    let page = setting.store.events(setting.tenant, filter).await.expect("a page");
    assert_eq!(page.items, [all[2].clone()]);
}

/// Newest first by id, `before` goes on, `more` tells.
pub async fn deliveries_come_in_pages(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(setting.publish_one(subscription).await);
    }
    ids.reverse();
    let list = async |before, limit| {
        let filter = DeliveryFilter { before, limit, ..DeliveryFilter::default() };
        let page = setting.store.deliveries(setting.tenant, filter).await.expect("a page");
        (page.items.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), page.more)
    };
    assert_eq!(list(None, 2).await, (ids[..2].to_vec(), true));
    assert_eq!(list(Some(ids[1]), 2).await, (ids[2..4].to_vec(), true));
    assert_eq!(list(Some(ids[3]), 2).await, (ids[4..].to_vec(), false));
    assert_eq!(list(None, 5).await, (ids.clone(), false));
}

/// By event, subscription and state, alone and together.
pub async fn deliveries_can_be_filtered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let first = setting.publish(&[(a, None), (b, None)]).await;
    let second = setting.publish(&[(a, None), (b, None)]).await;
    setting.record(first.deliveries[0], delivered(), at(1)).await;
    setting.record(first.deliveries[1], dead_skip(), at(1)).await;
    setting.record(second.deliveries[0], dropped(), at(1)).await;
    setting.record(second.deliveries[1], failed(at(9)), at(1)).await;
    let list = async |event, subscription, state| {
        let filter = DeliveryFilter { event, subscription, state, before: None, limit: 10 };
        let page = setting.store.deliveries(setting.tenant, filter).await.expect("a page");
        assert!(!page.more);
        page.items.iter().map(|delivery| delivery.id).collect::<Vec<_>>()
    };
    let [a1, b1] = first.deliveries[..] else { panic!("two deliveries") };
    let [a2, b2] = second.deliveries[..] else { panic!("two deliveries") };
    assert_eq!(list(Some(first.event.id), None, None).await, [b1, a1]);
    assert_eq!(list(None, Some(a), None).await, [a2, a1]);
    assert_eq!(list(None, None, Some(StateKind::Pending)).await, [b2]);
    assert_eq!(list(None, None, Some(StateKind::Delivered)).await, [a1]);
    assert_eq!(list(None, None, Some(StateKind::Dead)).await, [b1]);
    assert_eq!(list(None, None, Some(StateKind::Cancelled)).await, [a2]);
    assert_eq!(list(Some(first.event.id), Some(b), Some(StateKind::Dead)).await, [b1]);
    assert_eq!(list(Some(second.event.id), Some(b), Some(StateKind::Dead)).await, []);
    assert_eq!(list(Some(EventId::new(at(0), u128::MAX)), None, None).await, []);
    assert_eq!(list(None, Some(b), Some(StateKind::Pending)).await, [b2]);
}

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
        let filter = EventFilter { limit: 10, ..EventFilter::default() };
        assert!(store.events(stranger, filter).await.expect("a page").items.is_empty());
        for filter in [
            DeliveryFilter { limit: 10, ..DeliveryFilter::default() },
            DeliveryFilter {
                event: Some(published.event.id),
                subscription: Some(subscription),
                limit: 10,
                ..DeliveryFilter::default()
            },
        ] {
            assert!(store.deliveries(stranger, filter).await.expect("a page").items.is_empty());
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
    store.advance_redrive(stored.id, 10, at(60)).await.expect("advance");
    conserved(&setting, [7, 0, 0, 3], "redrive").await;
    setting.unsubscribe(b, at(70)).await;
    conserved(&setting, [3, 0, 0, 7], "unsubscribe").await;
    store.sweep_cancelled(3, at(80)).await.expect("sweep");
    conserved(&setting, [3, 0, 0, 7], "half a sweep").await;
    store.sweep_cancelled(10, at(80)).await.expect("sweep");
    conserved(&setting, [3, 0, 0, 7], "sweep").await;
    setting.record(ids[0], delivered(), at(81)).await;
    let prune = Prune {
        ended_before: at(1_000),
        dead_before: at(1_000),
        keys_before: at(0),
        recalls_before: at(0),
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
