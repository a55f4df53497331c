//! Cases about finding work and claiming it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{
    CatalogVersion, DeliveryId, DeliveryState, Epoch, Event, Shard, SubscriptionId, Timestamp,
};

use super::Fixture;
use super::builders::{
    LONG, SHORT, Setting, all_shards, at, dead_block, dead_skip, delivered, delivery, event,
    failed, node, whole,
};
use posthorn_store::{Claim, DueSubscription, Heartbeat, NewEvent, PendingAsk};

async fn publish_due(setting: &Setting, to: SubscriptionId, due: Timestamp) -> DeliveryId {
    let mut plan = delivery(to, None);
    plan.due_at = due;
    setting.accept(setting.planned(vec![plan]).await).await.deliveries[0]
}

async fn ask(setting: &Setting, asks: Vec<PendingAsk>, bytes: usize) -> Vec<Vec<DeliveryId>> {
    let replies = setting.store.pending(asks, bytes).await.expect("pending");
    replies.into_iter().map(|works| works.into_iter().map(|w| w.delivery.id).collect()).collect()
}

async fn due(setting: &Setting, shards: &[Shard]) -> Vec<DueSubscription> {
    let mut due = setting.store.due_subscriptions(shards).await.expect("due subscriptions");
    due.sort_by_key(|due| due.subscription);
    due
}

/// Earliest first; what is due at the same time, in commit order.
pub async fn pending_comes_by_due_time_then_seq(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for due in [30, 10, 20, 10, 30] {
        ids.push(publish_due(&setting, subscription, at(due)).await);
    }
    let expected = [ids[1], ids[3], ids[2], ids[0], ids[4]];
    assert_eq!(setting.ready(subscription).await, expected);
    for work in setting.pending(subscription, Timestamp::MAX).await {
        assert_eq!(work.delivery, setting.look(work.delivery.id).await);
        assert_eq!(work.event.id, work.delivery.event);
    }
    setting.record(ids[1], failed(at(25)), at(11)).await;
    let expected = [ids[3], ids[2], ids[1], ids[0], ids[4]];
    assert_eq!(setting.ready(subscription).await, expected);
}

/// At most `limit`, and due from `from` until `until`.
pub async fn pending_keeps_to_limit_and_time(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for due in [10, 20, 30] {
        ids.push(publish_due(&setting, subscription, at(due)).await);
    }
    let from = Timestamp::MIN;
    let want = |until, limit| vec![PendingAsk { subscription, from, until, limit }];
    assert_eq!(ask(&setting, want(at(9), 10), usize::MAX).await, [[]; 1]);
    assert_eq!(ask(&setting, want(at(20), 10), usize::MAX).await, [&ids[..2]]);
    assert_eq!(ask(&setting, want(at(99), 1), usize::MAX).await, [&ids[..1]]);
    assert_eq!(ask(&setting, want(Timestamp::MAX, 10), usize::MAX).await, [&ids[..]]);
    let later = PendingAsk { subscription, from: at(20), until: Timestamp::MAX, limit: 10 };
    assert_eq!(ask(&setting, vec![later], usize::MAX).await, [&ids[1..]]);
    let between = PendingAsk { from: at(11), until: at(29), ..later };
    assert_eq!(ask(&setting, vec![between], usize::MAX).await, [&ids[1..2]]);
}

/// One reply for each ask, in order, also for asks without an answer.
pub async fn pending_answers_each_ask_in_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b, c) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let unknown = SubscriptionId::new(at(0), u128::MAX);
    let (for_a, for_c) = (setting.publish_one(a).await, setting.publish_one(c).await);
    let want =
        |subscription| PendingAsk { subscription, from: Timestamp::MIN, until: at(0), limit: 5 };
    let replies = ask(&setting, vec![want(c), want(b), want(unknown), want(a)], usize::MAX).await;
    assert_eq!(replies, [vec![for_c], vec![], vec![], vec![for_a]]);
}

/// A byte limit may shorten the answer, but the first ask gets at least one.
pub async fn pending_keeps_to_bytes_but_gives_one(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    for _ in 0..20 {
        let big = Event { payload: Bytes::from(vec![7; 1_000]), ..event(setting.tenant) };
        let plan = vec![delivery(a, None), delivery(b, None)];
        let new = NewEvent { event: Arc::new(big), ..setting.planned(plan).await };
        setting.accept(new).await;
    }
    let want =
        |subscription| PendingAsk { subscription, from: Timestamp::MIN, until: at(0), limit: 100 };
    for bytes in [0, 1, 1_500, 5_000] {
        let replies = ask(&setting, vec![want(a), want(b)], bytes).await;
        assert_eq!(replies.len(), 2, "one reply for each ask");
        assert!(!replies[0].is_empty(), "the first ask gets at least one");
        let total = replies.iter().map(Vec::len).sum::<usize>() * 1_000;
        assert!(total <= bytes + 2_000, "{total} bytes for {bytes}");
    }
    let replies = ask(&setting, vec![want(a), want(b)], usize::MAX).await;
    assert_eq!((replies[0].len(), replies[1].len()), (20, 20));
}

/// Deliveries of one event that are read together share it.
pub async fn pending_shares_events(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(a, None), (b, None)]).await;
    let want =
        |subscription| PendingAsk { subscription, from: Timestamp::MIN, until: at(0), limit: 5 };
    let replies = setting.store.pending(vec![want(a), want(b)], usize::MAX).await.expect("pending");
    assert_eq!(replies[0][0].event, published.event);
    assert!(Arc::ptr_eq(&replies[0][0].event, &replies[1][0].event));
}

/// What has ended, is parked, or belongs to a deleted subscription is no work.
pub async fn pending_leaves_out_ended_and_deleted(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (kept, gone) = (setting.subscribe().await, setting.subscribe().await);
    let ended = setting.publish_one(kept).await;
    let open = setting.publish_one(kept).await;
    let dead = setting.publish_one(kept).await;
    setting.publish_one(gone).await;
    setting.record(ended, delivered(), at(1)).await;
    setting.record(dead, dead_skip(), at(1)).await;
    setting.unsubscribe(gone, at(2)).await;
    assert_eq!(setting.ready(kept).await, [open]);
    assert!(setting.ready(gone).await.is_empty());
}

/// One line for each subscription with work, with its earliest due time.
pub async fn due_subscriptions_have_their_earliest_time(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, b, idle) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    publish_due(&setting, a, at(30)).await;
    let first = publish_due(&setting, a, at(10)).await;
    publish_due(&setting, b, at(20)).await;
    let done = publish_due(&setting, idle, at(5)).await;
    setting.record(done, delivered(), at(6)).await;
    let line = |subscription, due| DueSubscription { subscription, due_at: at(due) };
    assert_eq!(due(&setting, &all_shards()).await, [line(a, 10), line(b, 20)]);
    setting.record(first, failed(at(40)), at(11)).await;
    assert_eq!(due(&setting, &all_shards()).await, [line(a, 30), line(b, 20)]);
}

/// Only subscriptions of the asked shards.
pub async fn due_subscriptions_keep_to_their_shards(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut all = Vec::new();
    for _ in 0..8 {
        let id = setting.subscribe().await;
        setting.publish_one(id).await;
        all.push(id);
    }
    let mine = [Shard::of(all[0]), Shard::of(all[3])];
    let found = due(&setting, &mine).await;
    let found: Vec<SubscriptionId> = found.iter().map(|due| due.subscription).collect();
    let mut expected = all;
    expected.retain(|id| mine.contains(&Shard::of(*id)));
    assert_eq!(found, expected);
    assert!(due(&setting, &[]).await.is_empty());
}

/// A subscription with nothing but a blocked lane, or a deleted one, has no work.
pub async fn due_subscriptions_leave_out_blocked_and_deleted(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (blocked, gone) = (setting.subscribe().await, setting.subscribe().await);
    let head = setting.publish_in(blocked, whole()).await;
    setting.publish_in(blocked, whole()).await;
    setting.publish_one(gone).await;
    assert_eq!(due(&setting, &all_shards()).await.len(), 2);
    setting.record(head, dead_block(), at(1)).await;
    setting.unsubscribe(gone, at(2)).await;
    assert!(due(&setting, &all_shards()).await.is_empty());
}

fn claim(setting: &Setting, of: SubscriptionId, delivery: DeliveryId, until: i64) -> Claim {
    let fence = setting.fence(of);
    Claim { fence, delivery, expected_attempts: 0, expected_revival: 0, until: at(until) }
}

async fn claims(setting: &Setting, batch: Vec<Claim>) -> Vec<bool> {
    setting.store.claim(batch).await.expect("claim")
}

/// A claimed delivery is in flight, and due again when its lease ends.
pub async fn claim_hides_until_the_lease_ends(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    assert_eq!(claims(&setting, vec![claim(&setting, subscription, id, 500)]).await, [true]);
    let seen = setting.look(id).await;
    assert_eq!((seen.state, seen.due_at, seen.attempts), (DeliveryState::InFlight, at(500), 0));
    assert!(setting.pending(subscription, at(499)).await.is_empty());
    let again = setting.pending(subscription, at(500)).await;
    assert_eq!(again[0].delivery, seen);
    assert_eq!(claims(&setting, vec![claim(&setting, subscription, id, 900)]).await, [true]);
    setting.record(id, failed(at(950)), at(600)).await;
    let seen = setting.look(id).await;
    assert_eq!((seen.state, seen.due_at, seen.attempts), (DeliveryState::Pending, at(950), 1));
}

/// No lease on what has ended, has other attempts, is parked, deleted or unknown.
pub async fn claim_is_refused_when_things_moved_on(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (a, gone) = (setting.subscribe().await, setting.subscribe().await);
    let ended = setting.publish_one(a).await;
    let tried = setting.publish_one(a).await;
    setting.publish_in(a, whole()).await;
    let parked = setting.publish_in(a, whole()).await;
    let open = setting.publish_one(a).await;
    let orphan = setting.publish_one(gone).await;
    setting.record(ended, delivered(), at(1)).await;
    setting.record(tried, failed(at(2)), at(1)).await;
    setting.unsubscribe(gone, at(3)).await;
    let unknown = DeliveryId::new(at(0), u128::MAX);
    let mut batch: Vec<Claim> = [ended, tried, parked, open, unknown]
        .into_iter()
        .map(|id| claim(&setting, a, id, 500))
        .collect();
    batch.push(claim(&setting, gone, orphan, 500));
    let before = setting.look(tried).await;
    assert_eq!(claims(&setting, batch).await, [false, false, false, true, false, false]);
    assert_eq!(setting.look(tried).await, before);
    assert!(setting.look(parked).await.is_parked());
}

/// No attempt begins under a lease on the shard that has run out, even if nobody took it.
pub async fn claim_needs_a_lease_that_runs(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let mut good = claim(&setting, subscription, id, 500);
    let shards = [good.fence.shard];
    let grants = setting.store.acquire_shards(setting.node, &shards, SHORT).await.expect("acquire");
    good.fence.epoch = grants[0].epoch;
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    assert_eq!(claims(&setting, vec![good]).await, [false]);
    let beat =
        Heartbeat { node: setting.node, ttl: LONG, catalog: CatalogVersion(1), version: "0" };
    setting.store.heartbeat(beat).await.expect("renewed");
    assert_eq!(claims(&setting, vec![good]).await, [true], "the same epoch, renewed");
}

/// No lease under another epoch or for another node.
pub async fn claim_is_fenced(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let good = claim(&setting, subscription, id, 500);
    let (mut old, mut stranger) = (good, good);
    old.fence.epoch = Epoch(good.fence.epoch.0 + 1);
    stranger.fence.node = node();
    let before = setting.look(id).await;
    assert_eq!(claims(&setting, vec![old, stranger]).await, [false, false]);
    assert_eq!(setting.look(id).await, before);
    assert_eq!(claims(&setting, vec![good]).await, [true]);
}

/// A lease that was written down is there after a crash.
pub async fn claim_is_written_before_a_crash(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    assert_eq!(claims(&setting, vec![claim(&setting, subscription, id, 500)]).await, [true]);
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.look(id).await.state, DeliveryState::InFlight);
    assert!(setting.pending(subscription, at(499)).await.is_empty());
    assert_eq!(setting.pending(subscription, at(500)).await.len(), 1);
    setting.record(id, delivered(), at(501)).await;
}
