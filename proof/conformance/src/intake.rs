//! Cases about accepting events.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{DeliveryState, Event, LaneKey, Timestamp, TraceContext};

use super::Fixture;
use super::builders::{Setting, at, delivery, event, idempotency, topic};
use posthorn_store::{Accepted, CatalogChange, NewEvent, Placed};

async fn accept(setting: &Setting, batch: Vec<NewEvent>) -> Vec<Accepted> {
    let wanted = batch.len();
    let replies = setting.store.accept(batch).await.expect("accept");
    assert_eq!(replies.len(), wanted, "one reply for each item");
    replies
}

#[track_caller]
fn stored(accepted: &Accepted) -> &[Placed] {
    match accepted {
        Accepted::Stored(placed) => placed,
        other => panic!("stored, not {other:?}"),
    }
}

/// Every field of an event comes back, payload bytes verbatim.
pub async fn event_is_stored_as_it_was(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let rich = Event {
        attributes: [("colour", "red"), ("größe", ""), ("q", "\"'\\")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        key: Some(LaneKey::new("user 7 / ä").expect("a proper key")),
        content_type: "application/octet-stream".to_owned(),
        payload: Bytes::from((0..=255).cycle().take(70_000).collect::<Vec<u8>>()),
        accepted_at: at(-5),
        trace: TraceContext::from_bytes(&[7; 24].into_iter().chain([1]).collect::<Vec<u8>>()),
        ..event(setting.tenant)
    };
    let bare = Event { payload: Bytes::new(), ..event(setting.tenant) };
    for event in [rich, bare] {
        let new = NewEvent { event: Arc::new(event.clone()), ..setting.planned(vec![]).await };
        setting.accept(new).await;
        let found = setting.store.event(setting.tenant, event.id).await.expect("a lookup");
        assert_eq!(found, Some(event));
    }
}

/// A new delivery is pending, due when the plan says, with nothing spent.
pub async fn deliveries_start_pending(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let mut plan = vec![delivery(a, None), delivery(b, None)];
    plan[1].due_at = at(77);
    let published = setting.accept(setting.planned(plan.clone()).await).await;
    assert_eq!(published.placed.len(), 2);
    for (new, placed) in plan.iter().zip(&published.placed) {
        assert!(!placed.parked);
        let seen = setting.look(new.id).await;
        assert_eq!((seen.id, seen.event), (new.id, published.event.id));
        assert_eq!((seen.subscription, seen.tenant), (new.subscription, setting.tenant));
        assert_eq!((seen.seq, seen.due_at), (placed.seq, new.due_at));
        assert_eq!(seen.state, DeliveryState::Pending);
        assert_eq!((seen.attempts, seen.budget_base), (0, 0));
        assert_eq!((seen.budget_began, seen.created_at), (at(0), at(0)));
        assert_eq!((seen.lane, seen.ended_at), (None, None));
    }
}

/// The same key with the same contents is a duplicate, with other contents a conflict.
pub async fn repeats_are_recognised(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut first = setting.planned(vec![delivery(subscription, None)]).await;
    first.idempotency = Some(idempotency("order 7", 1));
    let id = first.event.id;
    setting.accept(first).await;
    let mut repeat = setting.planned(vec![delivery(subscription, None)]).await;
    repeat.idempotency = Some(idempotency("order 7", 1));
    let mut other = setting.planned(vec![delivery(subscription, None)]).await;
    other.idempotency = Some(idempotency("order 7", 2));
    let (repeat_id, other_id) = (repeat.event.id, other.event.id);
    let replies = accept(&setting, vec![repeat, other]).await;
    assert_eq!(replies, [Accepted::Duplicate { event: id }, Accepted::Conflict { event: id }]);
    for nobody in [repeat_id, other_id] {
        assert_eq!(setting.store.event(setting.tenant, nobody).await.expect("a lookup"), None);
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (1, 1));
}

/// Earlier items of a batch count for later ones, and the others are not disturbed.
pub async fn repeats_inside_one_batch_are_recognised(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut batch = Vec::new();
    for (key, contents) in [("a", 1), ("a", 1), ("a", 2), ("b", 1)] {
        let mut new = setting.planned(vec![delivery(subscription, None)]).await;
        new.idempotency = Some(idempotency(key, contents));
        batch.push(new);
    }
    let first = batch[0].event.id;
    let replies = accept(&setting, batch).await;
    stored(&replies[0]);
    assert_eq!(replies[1], Accepted::Duplicate { event: first });
    assert_eq!(replies[2], Accepted::Conflict { event: first });
    stored(&replies[3]);
    assert_eq!(setting.ready(subscription).await.len(), 2);
}

/// Two tenants may use the same key.
pub async fn keys_belong_to_their_tenant(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mut batch = Vec::new();
    for tenant in [setting.tenant, other] {
        batch.push(NewEvent {
            event: Arc::new(event(tenant)),
            idempotency: Some(idempotency("same", 1)),
            catalog: setting.version_of(tenant).await,
            deliveries: vec![],
        });
    }
    for reply in accept(&setting, batch).await {
        stored(&reply);
    }
}

/// A repeat is recognised although its plan is stale: it must not be planned again.
pub async fn key_is_checked_before_the_plan(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut first = setting.planned(vec![]).await;
    first.idempotency = Some(idempotency("k", 1));
    let mut repeat = setting.planned(vec![]).await;
    repeat.idempotency = Some(idempotency("k", 1));
    let id = first.event.id;
    setting.accept(first).await;
    setting.subscribe().await;
    assert_eq!(accept(&setting, vec![repeat]).await, [Accepted::Duplicate { event: id }]);
}

/// A plan on an older catalog is refused, uses no key, and the rest of the batch is stored.
pub async fn stale_plan_changes_nothing_and_disturbs_nobody(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut stale = setting.planned(vec![delivery(subscription, None)]).await;
    stale.idempotency = Some(idempotency("k", 1));
    setting.subscribe().await;
    let before = setting.planned(vec![delivery(subscription, None)]).await;
    let after = setting.planned(vec![delivery(subscription, None)]).await;
    let id = stale.event.id;
    let mut again = stale.clone();
    let replies = accept(&setting, vec![before, stale, after]).await;
    stored(&replies[0]);
    assert_eq!(replies[1], Accepted::Stale);
    stored(&replies[2]);
    assert_eq!(setting.store.event(setting.tenant, id).await.expect("a lookup"), None);
    assert_eq!(setting.ready(subscription).await.len(), 2);

    again.catalog = setting.version_of(setting.tenant).await;
    stored(&accept(&setting, vec![again]).await[0]);
}

/// Only changes of the event's own tenant make its plan stale.
pub async fn change_elsewhere_does_not_make_a_plan_stale(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let new = setting.planned(vec![]).await;
    let change = CatalogChange::PutTopic(topic(other, "a"));
    setting.store.change_catalog(change).await.expect("put");
    setting.accept(new).await;
}

/// The order of the items, and of the deliveries in each, is the order of `seq`.
pub async fn seq_follows_batch_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let mut seqs = Vec::new();
    for _ in 0..3 {
        let mut batch = Vec::new();
        for _ in 0..5 {
            batch.push(setting.planned(vec![delivery(b, None), delivery(a, None)]).await);
        }
        // Ids made in the other order: only the batch counts.
        batch.reverse();
        for reply in accept(&setting, batch).await {
            seqs.extend(stored(&reply).iter().map(|placed| placed.seq));
        }
    }
    assert_eq!(seqs.len(), 30);
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

/// An event nobody wants is an event all the same.
pub async fn event_without_deliveries_is_stored(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let published = setting.publish(&[]).await;
    assert!(published.placed.is_empty());
    let found = setting.store.event(setting.tenant, published.event.id).await.expect("a lookup");
    assert_eq!(found.as_ref(), Some(&*published.event));
}

/// Nothing in, nothing out.
pub async fn empty_batch_is_fine(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    assert!(accept(&setting, vec![]).await.is_empty());
    assert!(setting.store.record(vec![]).await.expect("record").is_empty());
    assert!(setting.store.claim(vec![]).await.expect("claim").is_empty());
    assert!(setting.store.pending(vec![], 1).await.expect("pending").is_empty());
}

/// What was accepted is there after a crash: event, deliveries, key, and `seq` goes on.
pub async fn accepted_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut new = setting.planned(vec![delivery(subscription, None)]).await;
    new.idempotency = Some(idempotency("k", 1));
    let mut repeat = setting.planned(vec![]).await;
    repeat.idempotency = Some(idempotency("k", 1));
    let published = setting.accept(new).await;
    let before = setting.look(published.deliveries[0]).await;

    let setting = setting.reopen(fixture).await;
    let works = setting.pending(subscription, Timestamp::MAX).await;
    assert_eq!(works.len(), 1);
    assert_eq!((&works[0].delivery, &works[0].event), (&before, &published.event));
    let duplicate = Accepted::Duplicate { event: published.event.id };
    assert_eq!(accept(&setting, vec![repeat]).await, [duplicate]);
    let next = setting.publish(&[(subscription, None)]).await;
    assert!(next.placed[0].seq > published.placed[0].seq);
}

/// Many publishers with one key at once: exactly one event.
pub async fn concurrent_repeats_are_one_event(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut tasks = Vec::new();
    for _ in 0..24 {
        let mut new = setting.planned(vec![delivery(subscription, None)]).await;
        new.idempotency = Some(idempotency("k", 1));
        let store = Arc::clone(&setting.store);
        tasks.push(tokio::spawn(async move {
            let id = new.event.id;
            (id, store.accept(vec![new]).await.expect("accept").remove(0))
        }));
    }
    let (mut winners, mut pointed) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.await.expect("no task panics") {
            (id, Accepted::Stored(_)) => winners.push(id),
            (_, Accepted::Duplicate { event }) => pointed.push(event),
            other => panic!("stored or duplicate, not {other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert!(pointed.iter().all(|event| *event == winners[0]));
    assert_eq!(setting.ready(subscription).await.len(), 1);
}
