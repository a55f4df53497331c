//! Cases about events that are to be delivered later.

use std::sync::Arc;

use posthorn_domain::{
    CancelReason, DeliveryId, DeliveryState, Event, Job, JobId, JobState, JobWork, Lane,
    ReplayStatus, Span, SubscriptionId, Timestamp,
};
use posthorn_store::{
    Bite, Bitten, Claim, DeliveryFilter, Entered, Error, Listing, NewDelivery, NewEvent, Order,
    Redelivery, Refusal, StateKind,
};

use super::Fixture;
use super::builders::{
    Published, Setting, all_shards, at, dead_block, delivered, delivery, event, failed, lane,
    unique, whole,
};

/// Publishes an event that is to be delivered then.
async fn publish_at(
    setting: &Setting,
    when: Timestamp,
    to: &[(SubscriptionId, Option<Lane>)],
) -> Published {
    let due = |(id, lane): &(SubscriptionId, Option<Lane>)| NewDelivery {
        due_at: when,
        ..delivery(*id, lane.clone())
    };
    let planned = setting.planned(to.iter().map(due).collect()).await;
    let event = Event { deliver_at: Some(when), ..event(setting.tenant) };
    setting.accept(NewEvent { event: Arc::new(event), ..planned }).await
}

async fn enter(setting: &Setting, when: Timestamp) -> Entered {
    setting.store.enter_lanes(100, when).await.expect("an answer")
}

async fn pending_ids(setting: &Setting) -> Vec<DeliveryId> {
    let filter = DeliveryFilter { state: Some(StateKind::Pending), ..DeliveryFilter::default() };
    let oldest = Listing { order: Order::OldestFirst, after: None, limit: 100 };
    let page = setting.store.deliveries(setting.tenant, filter, oldest).await.expect("a list");
    let mut ids: Vec<DeliveryId> = page.items.iter().map(|delivery| delivery.id).collect();
    ids.sort_unstable();
    ids
}

async fn pending_count(setting: &Setting) -> u64 {
    setting.store.counts(Some(setting.tenant)).await.expect("counts").pending
}

/// Ends what is at the head of a subscription's lanes, again and again; who came in which order.
async fn run_out(setting: &Setting, subscription: SubscriptionId) -> Vec<DeliveryId> {
    let mut order = Vec::new();
    while let Some(next) = setting.ready(subscription).await.first().copied() {
        order.push(next);
        setting.record(next, delivered(), at(900_000)).await;
    }
    order
}

/// The time and the retention come back as they were.
pub async fn times_read_back_as_they_were(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let retention = Some(Span::from_secs(3_600));
    let both = Event { deliver_at: Some(at(5_000)), retention, ..event(setting.tenant) };
    let plain = event(setting.tenant);
    for new in [&both, &plain] {
        let planned = setting.planned(vec![]).await;
        setting.accept(NewEvent { event: Arc::new(new.clone()), ..planned }).await;
    }
    let setting = setting.reopen(fixture).await;
    for new in [both, plain] {
        let found = setting.store.event(setting.tenant, new.id).await.expect("a lookup");
        assert_eq!(found, Some(new));
    }
}

/// Without a lane it is due at its time, and its age counts from then.
pub async fn scheduled_delivery_is_due_at_its_time(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let published = publish_at(&setting, at(5_000), &[(subscription, None)]).await;
    let id = published.deliveries[0];
    assert!(!published.placed[0].parked);
    let row = setting.look(id).await;
    assert_eq!((row.state, row.due_at), (DeliveryState::Pending, at(5_000)));
    assert_eq!((row.created_at, row.budget_began), (at(0), at(5_000)));
    assert_eq!(row.scheduled_until(at(4_999)), Some(at(5_000)));
    assert_eq!(row.scheduled_until(at(5_000)), None);
    assert!(!row.is_by_hand(&published.event), "nobody asked for it");
    assert!(setting.pending(subscription, at(4_999)).await.is_empty());
    let due = setting.store.due_subscriptions(&all_shards()).await.expect("an answer");
    assert_eq!(due.iter().map(|due| due.due_at).collect::<Vec<_>>(), [at(5_000)]);
    assert_eq!(enter(&setting, at(6_000)).await, Entered::default(), "it has no lane");
    assert_eq!(setting.pending(subscription, at(5_000)).await.len(), 1);
    setting.record(id, failed(at(6_000)), at(5_001)).await;
    let row = setting.look(id).await;
    assert_eq!((row.due_at, row.budget_began), (at(6_000), at(5_000)));
}

/// Until its time it holds nobody up and cannot be claimed, but is there for lists and counts.
pub async fn scheduled_delivery_is_outside_its_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let published = publish_at(&setting, at(5_000), &[(subscription, whole())]).await;
    let id = published.deliveries[0];
    assert!(published.placed[0].parked);
    let row = setting.look(id).await;
    assert!(row.is_outside_its_lane() && row.lane.is_none());
    assert_eq!((row.state, row.budget_began), (DeliveryState::Pending, at(5_000)));
    assert!(setting.store.due_subscriptions(&all_shards()).await.expect("due").is_empty());
    let claim = Claim {
        fence: setting.fence(subscription),
        delivery: id,
        expected_attempts: 0,
        expected_revival: 0,
        until: at(9_000),
    };
    assert_eq!(setting.store.claim(vec![claim]).await.expect("an answer"), [false]);
    let next = setting.publish(&[(subscription, whole())]).await;
    assert!(!next.placed[0].parked, "the lane is free");
    let mut both = vec![id, next.deliveries[0]];
    both.sort_unstable();
    assert_eq!(pending_ids(&setting).await, both);
    assert_eq!(pending_count(&setting).await, 2);
    assert_eq!(enter(&setting, at(4_999)).await, Entered::default());
    assert_eq!(setting.record(next.deliveries[0], delivered(), at(10)).await, None);
    assert!(setting.look(id).await.is_outside_its_lane());
}

/// By their times, and in commit order where these are the same; behind whoever is in the lane already.
pub async fn lanes_are_entered_by_time_and_then_commit_order(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let to = [(subscription, whole())];
    let late = publish_at(&setting, at(2_000), &to).await.deliveries[0];
    let one = publish_at(&setting, at(1_000), &to).await.deliveries[0];
    let two = publish_at(&setting, at(1_000), &to).await.deliveries[0];
    let head = setting.publish(&to).await;
    let setting = setting.reopen(fixture).await;
    let first = setting.store.enter_lanes(2, at(3_000)).await.expect("an answer");
    assert_eq!(first, Entered { subscriptions: vec![subscription], more: true });
    assert!(setting.look(late).await.is_outside_its_lane());
    let between = setting.publish(&to).await.deliveries[0];
    let rest = setting.store.enter_lanes(2, at(3_000)).await.expect("an answer");
    assert_eq!(rest, Entered { subscriptions: vec![subscription], more: false });
    let row = setting.look(one).await;
    assert!(row.is_parked() && row.lane == whole() && row.seq > head.placed[0].seq);
    assert_eq!((row.budget_began, row.revival, row.attempts), (at(1_000), 0, 0));
    let mut all = vec![late, one, two, head.deliveries[0], between];
    all.sort_unstable();
    assert_eq!(pending_ids(&setting).await, all, "each is there once");
    assert_eq!(pending_count(&setting).await, 5);
    let order = run_out(&setting, subscription).await;
    assert_eq!(order, [head.deliveries[0], one, two, between, late]);
    assert_eq!(enter(&setting, at(9_000)).await, Entered::default(), "each enters once");
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.delivered), (0, 5));
    let attempts = setting.store.attempts(setting.tenant, late).await.expect("attempts");
    assert_eq!(attempts.len(), 1);
}

/// Who enters a free lane is due at once; who enters one that a dead letter blocks waits.
pub async fn entering_is_like_being_accepted(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let blocker = setting.publish_in(subscription, lane("b")).await;
    setting.record(blocker, dead_block(), at(1)).await;
    let to = [(subscription, lane("a"))];
    let free = publish_at(&setting, at(1_000), &to).await.deliveries[0];
    let blocked = publish_at(&setting, at(1_000), &[(subscription, lane("b"))]).await;
    let blocked = blocked.deliveries[0];
    assert_eq!(enter(&setting, at(1_500)).await.subscriptions, [subscription]);
    assert_eq!(setting.look(free).await.due_at, at(1_500));
    assert!(setting.look(blocked).await.is_parked());
    let works = setting.pending(subscription, at(1_500)).await;
    assert_eq!(works.len(), 1);
    assert_eq!(works[0].event.deliver_at, Some(at(1_000)));
    // Somebody whose clock is behind.
    let moved = setting.store.cancel_delivery(setting.tenant, blocker, at(900)).await;
    let ready = moved.expect("cancelled").ready.expect("the next goes on");
    assert_eq!((ready.delivery.id, ready.delivery.due_at), (blocked, at(1_000)));
}

/// Who was cancelled or forgotten, or whose subscription left, never enters.
pub async fn what_ended_before_its_time_never_enters(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (stays, leaves) = (setting.subscribe().await, setting.subscribe().await);
    let to = [(stays, whole()), (stays, whole()), (leaves, whole())];
    let ids = publish_at(&setting, at(1_000), &to).await.deliveries;
    let late = publish_at(&setting, at(2_000), &[(leaves, whole())]).await.deliveries[0];
    let moved = setting.store.cancel_delivery(setting.tenant, ids[0], at(10)).await;
    let moved = moved.expect("cancelled");
    assert_eq!(moved.delivery.state, DeliveryState::Cancelled(CancelReason::Operator));
    assert_eq!((moved.ready, moved.recall.is_some()), (None, true));
    assert_eq!(setting.look(ids[0]).await, moved.delivery);
    let gone = setting.store.forget_delivery(setting.tenant, ids[1], at(10)).await;
    assert!(gone.expect("forgotten").ready.is_none());
    setting.unsubscribe(leaves, at(20)).await;
    assert_eq!(enter(&setting, at(1_500)).await, Entered::default());
    let swept = setting.store.sweep_cancelled(100, at(30)).await.expect("swept");
    assert_eq!((swept.cancelled, swept.more), (2, false));
    assert_eq!(enter(&setting, at(5_000)).await, Entered::default());
    for id in [ids[2], late] {
        let state = setting.look(id).await.state;
        assert_eq!(state, DeliveryState::Cancelled(CancelReason::Unsubscribed));
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.cancelled, counts.deliveries()), (0, 3, 3));
}

/// Before its time nothing is tried by hand. What was cancelled then comes back to its lane later.
pub async fn nothing_is_retried_before_its_time(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let to = [(subscription, None), (subscription, lane("a"))];
    let ids = publish_at(&setting, at(1_000), &to).await.deliveries;
    let refused = Refusal::Scheduled { until: at(1_000) };
    // Its time has come, and it is about to enter its lane.
    let retried = setting.store.retry_delivery(setting.tenant, ids[1], at(1_000)).await;
    assert!(matches!(&retried, Err(Error::Refused(why)) if *why == refused), "{retried:?}");
    for id in &ids {
        let before = setting.look(*id).await;
        let retried = setting.store.retry_delivery(setting.tenant, *id, at(999)).await;
        assert!(matches!(&retried, Err(Error::Refused(why)) if *why == refused), "{retried:?}");
        assert_eq!(setting.look(*id).await, before);
        setting.store.cancel_delivery(setting.tenant, *id, at(10)).await.expect("cancelled");
        let retried = setting.store.retry_delivery(setting.tenant, *id, at(999)).await;
        assert!(matches!(&retried, Err(Error::Refused(why)) if *why == refused), "{retried:?}");
    }
    let later = setting.publish_in(subscription, lane("a")).await;
    let moved = setting.store.retry_delivery(setting.tenant, ids[1], at(1_000)).await;
    let moved = moved.expect("its time has come");
    assert_eq!((moved.delivery.lane.clone(), moved.delivery.due_at), (lane("a"), at(1_000)));
    assert!(setting.look(later).await.is_parked(), "it came later");
    assert_eq!(
        setting.record(ids[1], delivered(), at(1_001)).await.expect("next").delivery.id,
        later
    );
}

fn running(setting: &Setting) -> Job {
    Job {
        id: JobId::new(at(0), unique().into()),
        tenant: setting.tenant,
        work: JobWork::Replay {
            subscription: None,
            events: posthorn_domain::Selection::default(),
            status: ReplayStatus::All,
            budget: posthorn_domain::Budget::Fresh,
        },
        per_second: 50,
        state: JobState::Running,
        seen: 0,
        done: 0,
        created_by: "key_1".to_owned(),
        created_at: at(3),
        finished_at: None,
        problem: None,
    }
}

async fn replay(
    setting: &Setting,
    published: &Published,
    to: &[(SubscriptionId, Option<Lane>)],
    when: Timestamp,
) -> (Vec<DeliveryId>, Bitten) {
    let job = running(setting);
    setting.store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
    let deed = |(subscription, lane): &(SubscriptionId, Option<Lane>)| Redelivery {
        event: published.event.id,
        subscription: *subscription,
        id: DeliveryId::new(at(0), unique().into()),
        lane: lane.clone(),
        status: ReplayStatus::All,
    };
    let deeds: Vec<Redelivery> = to.iter().map(deed).collect();
    let ids = deeds.iter().map(|deed| deed.id).collect();
    let bite = Bite {
        job: job.id,
        expected: None,
        cursor: None,
        seen: 1,
        deeds,
        expunges: None,
        moves: None,
        removes: None,
        ends: Some(JobState::Done),
        ending: None,
        problem: None,
        at: when,
    };
    (ids, setting.store.advance_job(bite).await.expect("advances"))
}

/// What a job makes of an event whose time is to come waits for it too.
pub async fn replays_wait_for_the_time_of_their_event(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (plain, ordered, old) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let published = publish_at(&setting, at(5_000), &[(old, whole())]).await;
    let cancelled = published.deliveries[0];
    setting.store.cancel_delivery(setting.tenant, cancelled, at(5)).await.expect("cancelled");
    let to = [(plain, None), (ordered, whole()), (old, whole())];
    let (ids, bitten) = replay(&setting, &published, &to, at(1_000)).await;
    assert_eq!(bitten.done, 2, "what was cancelled is not tried before its time");
    let row = setting.look(ids[0]).await;
    assert_eq!((row.due_at, row.budget_began), (at(5_000), at(5_000)));
    let row = setting.look(ids[1]).await;
    assert!(row.is_outside_its_lane());
    assert_eq!(row.budget_began, at(5_000));
    assert_eq!(pending_count(&setting).await, 2);
    let head = setting.publish_in(ordered, whole()).await;
    assert_eq!(enter(&setting, at(5_000)).await.subscriptions, [ordered]);
    assert_eq!(run_out(&setting, ordered).await, [head, ids[1]]);
    let filter = DeliveryFilter { event: Some(published.event.id), ..DeliveryFilter::default() };
    let page = setting.store.deliveries(setting.tenant, filter, Listing::newest(10)).await;
    let mut found: Vec<DeliveryId> = page.expect("a page").items.iter().map(|d| d.id).collect();
    let mut expected = vec![cancelled, ids[0], ids[1]];
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let (_, bitten) = replay(&setting, &published, &to, at(6_000)).await;
    assert_eq!(bitten.done, 2, "what has ended is tried again, what waits is left alone");
}
