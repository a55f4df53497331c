//! Cases about order: who is parked, and who goes on when.

use std::collections::HashSet;
use std::sync::Arc;

use posthorn_domain::{DeliveryId, DeliveryState, Fence, SubscriptionId, Timestamp};

use super::Fixture;
use super::builders::{
    Setting, at, attempt, dead_block, dead_skip, delivered, delivery, dropped, event, failed, lane,
    postponed, whole,
};
use posthorn_store::{Accepted, Claim, NewEvent, Record, Recorded, Work};

/// Three deliveries in one lane of a fresh subscription.
async fn three(setting: &Setting) -> (SubscriptionId, [DeliveryId; 3]) {
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(setting.publish_in(subscription, whole()).await);
    }
    (subscription, [ids[0], ids[1], ids[2]])
}

#[track_caller]
fn is(work: Option<Work>, id: DeliveryId, due: Timestamp) {
    let work = work.expect("somebody goes on");
    assert_eq!(work.delivery.id, id);
    assert_eq!((work.delivery.due_at, work.delivery.state), (due, DeliveryState::Pending));
    assert_eq!(work.event.id, work.delivery.event);
}

/// Who comes into an occupied lane is parked: no due time, not pending.
pub async fn second_is_parked(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let first = setting.publish(&[(subscription, lane("k"))]).await;
    let second = setting.publish(&[(subscription, lane("k"))]).await;
    assert!(!first.placed[0].parked);
    assert!(second.placed[0].parked);
    assert!(first.placed[0].seq < second.placed[0].seq);
    let (head, parked) =
        (setting.look(first.deliveries[0]).await, setting.look(second.deliveries[0]).await);
    assert!(!head.is_parked() && parked.is_parked());
    assert_eq!((parked.lane, parked.state), (lane("k"), DeliveryState::Pending));
    assert_eq!(setting.ready(subscription).await, first.deliveries);
}

/// Success promotes the next, due at the time of the record, with its event.
pub async fn next_goes_on_after_delivered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, c]) = three(&setting).await;
    let promoted = setting.record(a, delivered(), at(10)).await;
    let seen = setting.look(b).await;
    assert_eq!(promoted.as_ref().map(|work| &work.delivery), Some(&seen));
    is(promoted, b, at(10));
    assert_eq!(setting.ready(subscription).await, [b]);
    is(setting.record(b, delivered(), at(20)).await, c, at(20));
    assert_eq!(setting.record(c, delivered(), at(30)).await, None);
    let next = setting.publish(&[(subscription, whole())]).await;
    assert!(!next.placed[0].parked, "the lane is free again");
}

/// A dead letter that is skipped promotes the next.
pub async fn next_goes_on_after_skipped_dead_letter(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, [a, b, _]) = three(&setting).await;
    is(setting.record(a, dead_skip(), at(10)).await, b, at(10));
}

/// A dropped delivery promotes the next.
pub async fn next_goes_on_after_drop(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, [a, b, _]) = three(&setting).await;
    is(setting.record(a, dropped(), at(10)).await, b, at(10));
}

/// A failed or postponed head stays the head, whenever it is due.
pub async fn failed_head_keeps_its_place(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, _]) = three(&setting).await;
    assert_eq!(setting.record(a, failed(at(5_000)), at(10)).await, None);
    assert_eq!(setting.ready(subscription).await, [a]);
    assert_eq!(setting.record(a, postponed(at(9_000)), at(5_000)).await, None);
    assert_eq!(setting.ready(subscription).await, [a]);
    let late = setting.publish(&[(subscription, whole())]).await;
    assert!(late.placed[0].parked);
    is(setting.record(a, delivered(), at(9_000)).await, b, at(9_000));
}

/// A head in flight stays the head.
pub async fn claimed_head_keeps_its_place(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, _]) = three(&setting).await;
    let claim = Claim {
        fence: setting.fence(subscription),
        delivery: a,
        expected_attempts: 0,
        expected_revival: 0,
        until: at(60_000),
    };
    assert_eq!(setting.store.claim(vec![claim]).await.expect("claim"), [true]);
    assert_eq!(setting.ready(subscription).await, [a]);
    assert!(setting.publish(&[(subscription, whole())]).await.placed[0].parked);
    is(setting.record(a, delivered(), at(10)).await, b, at(10));
}

/// A dead head that blocks keeps the others parked, newcomers included.
pub async fn dead_head_blocks_when_the_step_says_so(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, _]) = three(&setting).await;
    assert_eq!(setting.record(a, dead_block(), at(10)).await, None);
    assert!(setting.look(b).await.is_parked());
    assert!(setting.publish(&[(subscription, whole())]).await.placed[0].parked);
    assert!(setting.ready(subscription).await.is_empty());

    let lonely = setting.subscribe().await;
    let only = setting.publish_in(lonely, whole()).await;
    setting.record(only, dead_block(), at(10)).await;
    let next = setting.publish(&[(lonely, whole())]).await;
    assert!(next.placed[0].parked, "a dead letter blocks also when nobody waited");
}

/// The blocking dead letter comes back as the head, before everybody who waited.
pub async fn redriven_blocked_head_runs_first(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, c]) = three(&setting).await;
    setting.record(a, dead_block(), at(10)).await;
    let moved = setting.store.retry_delivery(setting.tenant, a, at(50)).await.expect("retry");
    assert_eq!(moved.delivery.due_at, at(50));
    is(moved.ready, a, at(50));
    assert_eq!(setting.ready(subscription).await, [a]);
    is(setting.record(a, delivered(), at(60)).await, b, at(60));
    is(setting.record(b, delivered(), at(70)).await, c, at(70));
}

/// Cancelling the blocking dead letter lets the next go on.
pub async fn cancelled_blocked_head_releases_the_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, _]) = three(&setting).await;
    setting.record(a, dead_block(), at(10)).await;
    let moved = setting.store.cancel_delivery(setting.tenant, a, at(50)).await.expect("cancel");
    assert!(matches!(moved.delivery.state, DeliveryState::Cancelled(_)));
    is(moved.ready, b, at(50));
    assert_eq!(setting.ready(subscription).await, [b]);
}

/// In a free lane a retry is due at once, and occupies the lane.
pub async fn retry_in_a_free_lane_is_due(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_in(subscription, lane("k")).await;
    setting.record(id, dead_skip(), at(10)).await;
    let moved = setting.store.retry_delivery(setting.tenant, id, at(50)).await.expect("retry");
    is(moved.ready, id, at(50));
    assert!(setting.publish(&[(subscription, lane("k"))]).await.placed[0].parked);
}

/// Cancelling the head promotes the next.
pub async fn cancelled_head_promotes_the_next(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (_, [a, b, _]) = three(&setting).await;
    let moved = setting.store.cancel_delivery(setting.tenant, a, at(50)).await.expect("cancel");
    is(moved.ready, b, at(50));
}

/// Cancelling somebody in the middle promotes nobody, and the lane passes over it.
pub async fn cancelled_parked_delivery_is_passed_over(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, c]) = three(&setting).await;
    let moved = setting.store.cancel_delivery(setting.tenant, b, at(50)).await.expect("cancel");
    assert_eq!(moved.ready, None);
    assert_eq!(setting.ready(subscription).await, [a]);
    is(setting.record(a, delivered(), at(60)).await, c, at(60));
}

/// Keys, the whole subscription, and other subscriptions are lanes of their own.
pub async fn lanes_are_independent(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (one, two) = (setting.subscribe().await, setting.subscribe().await);
    let plans = [(one, lane("a")), (one, lane("b")), (one, whole()), (one, None), (two, lane("a"))];
    let first = setting.publish(&plans).await;
    assert!(first.placed.iter().all(|placed| !placed.parked));
    let second = setting.publish(&plans).await;
    let parked: Vec<bool> = second.placed.iter().map(|placed| placed.parked).collect();
    assert_eq!(parked, [true, true, true, false, true]);
    is(setting.record(first.deliveries[1], delivered(), at(9)).await, second.deliveries[1], at(9));
    assert!(setting.look(second.deliveries[0]).await.is_parked());
    assert!(setting.look(second.deliveries[2]).await.is_parked());
    assert!(setting.look(second.deliveries[4]).await.is_parked());
}

/// Without a lane nobody waits for anybody.
pub async fn unordered_deliveries_are_never_parked(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(setting.publish_one(subscription).await);
    }
    assert_eq!(setting.record(ids[0], dead_block(), at(1)).await, None);
    assert_eq!(setting.ready(subscription).await, ids[1..]);
    let moved = setting.store.retry_delivery(setting.tenant, ids[0], at(5)).await.expect("retry");
    is(moved.ready, ids[0], at(5));
}

/// Items of one batch queue up behind each other.
pub async fn one_batch_fills_a_lane_in_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut batch = Vec::new();
    for _ in 0..5 {
        batch.push(setting.planned(vec![delivery(subscription, whole())]).await);
    }
    let ids: Vec<DeliveryId> = batch.iter().map(|new| new.deliveries[0].id).collect();
    let replies = setting.store.accept(batch).await.expect("accept");
    for (index, reply) in replies.iter().enumerate() {
        let Accepted::Stored(placed) = reply else { panic!("stored, not {reply:?}") };
        assert_eq!(placed[0].parked, index > 0);
    }
    for pair in ids.windows(2) {
        is(setting.record(pair[0], delivered(), at(5)).await, pair[1], at(5));
    }
}

/// Publishes into one lane from many tasks at once.
async fn crowd(setting: &Setting, subscription: SubscriptionId, tasks: usize, each: usize) {
    let catalog = setting.version_of(setting.tenant).await;
    let mut handles = Vec::new();
    for _ in 0..tasks {
        let (store, tenant) = (Arc::clone(&setting.store), setting.tenant);
        handles.push(tokio::spawn(async move {
            for _ in 0..each {
                let deliveries = vec![delivery(subscription, whole())];
                let event = Arc::new(event(tenant));
                let new = NewEvent { event, idempotency: None, catalog, deliveries };
                let replies = store.accept(vec![new]).await.expect("accept");
                assert!(matches!(replies[0], Accepted::Stored(_)), "{replies:?}");
            }
        }));
    }
    for handle in handles {
        handle.await.expect("no publisher panics");
    }
}

/// With many publishers at once, `seq` is a total order and the lane is visited in it.
pub async fn concurrent_accepts_are_totally_ordered(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    crowd(&setting, subscription, 8, 10).await;
    let mut head = {
        let mut heads = setting.pending(subscription, Timestamp::MAX).await;
        assert_eq!(heads.len(), 1, "one head");
        heads.pop()
    };
    let mut seqs = Vec::new();
    while let Some(work) = head {
        seqs.push(work.delivery.seq);
        head = setting.record(work.delivery.id, delivered(), at(5)).await;
    }
    assert_eq!(seqs.len(), 80);
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

async fn finish(setting: &Setting, fence: Fence, work: &Work) -> Option<Work> {
    let id = work.delivery.id;
    let record = Record {
        fence,
        tenant: setting.tenant,
        delivery: id,
        expected_attempts: 0,
        expected_revival: 0,
        ordered: work.delivery.lane.is_some(),
        step: delivered(),
        attempt: Some(attempt(id, 1, 200)),
        standing: None,
        told: Vec::new(),
        at: at(5),
    };
    match setting.record_one(record).await {
        Recorded::Written { promoted } => promoted,
        other => panic!("written, not {other:?}"),
    }
}

/// While some publish into a lane and its owner empties it, nobody is left behind in it.
pub async fn concurrent_accepts_and_records_leave_nobody_behind(fixture: &dyn Fixture) {
    let setting = Arc::new(Setting::new(fixture).await);
    let subscription = setting.subscribe().await;
    let fence = setting.fence(subscription);
    let publisher = {
        let setting = Arc::clone(&setting);
        tokio::spawn(async move { crowd(&setting, subscription, 4, 25).await })
    };
    let (mut seen, mut last) = (HashSet::new(), 0);
    while seen.len() < 100 {
        // Asked for before the work: once all are in, there is always a head.
        let all_in = publisher.is_finished();
        let mut head = setting.pending(subscription, Timestamp::MAX).await.pop();
        assert!(head.is_some() || !all_in, "{} left behind", 100 - seen.len());
        while let Some(work) = head {
            assert!(seen.insert(work.delivery.id), "{} came twice", work.delivery.id);
            assert!(work.delivery.seq > last, "in order");
            last = work.delivery.seq;
            head = finish(&setting, fence, &work).await;
        }
        tokio::task::yield_now().await;
    }
    publisher.await.expect("no publisher panics");
}

/// Heads, parked and blocking ones are the same after a crash.
pub async fn lanes_survive_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (subscription, [a, b, _]) = three(&setting).await;
    let (blocked, [x, y, _]) = three(&setting).await;
    setting.record(x, dead_block(), at(10)).await;
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.ready(subscription).await, [a]);
    assert!(setting.ready(blocked).await.is_empty());
    assert!(setting.publish(&[(blocked, whole())]).await.placed[0].parked);
    is(setting.record(a, delivered(), at(20)).await, b, at(20));
    let moved = setting.store.cancel_delivery(setting.tenant, x, at(30)).await.expect("cancel");
    is(moved.ready, y, at(30));
}
