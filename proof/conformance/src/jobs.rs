//! Cases about jobs: events of the past, delivered to whom they are wanted for.

use posthorn_domain::{
    DeliveryId, DeliveryState, Event, EventId, Job, JobId, JobState, JobWork, Lane, ReplayStatus,
    Selection, Subscription, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    Bite, Bitten, CatalogChange, DeliveryFilter, Error, EventTally, Listing, Order, Place, Prune,
    Redelivery, Refusal,
};

use super::Fixture;
use super::builders::{
    Published, Setting, at, dead_skip, delivered, failed, subscription, unique, whole,
};

/// A job of the setting's tenant.
pub(super) fn job(tenant: TenantId) -> Job {
    Job {
        id: JobId::new(at(0), unique().into()),
        tenant,
        work: JobWork::Replay {
            subscription: Some(SubscriptionId::new(at(0), 5)),
            events: Selection { from: Some(at(1)), until: Some(at(9)), ..Selection::default() },
            status: ReplayStatus::Missed,
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

/// That a subscription is new.
fn created(new: &Subscription) -> CatalogChange {
    CatalogChange::CreateSubscription(Box::new(new.clone()))
}

pub(super) async fn begun(setting: &Setting) -> Job {
    begun_for(setting, setting.tenant).await
}

pub(super) async fn begun_for(setting: &Setting, tenant: TenantId) -> Job {
    let job = job(tenant);
    setting.store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
    job
}

pub(super) fn redelivery(
    event: EventId,
    subscription: SubscriptionId,
    status: ReplayStatus,
) -> Redelivery {
    let id = DeliveryId::new(at(0), unique().into());
    Redelivery { event, subscription, id, lane: None, status }
}

pub(super) fn bite(
    job: &Job,
    expected: Option<Place>,
    cursor: u128,
    deeds: Vec<Redelivery>,
) -> Bite {
    Bite {
        job: job.id,
        expected,
        cursor: Some(Place(cursor)),
        seen: deeds.len() as u64,
        deeds,
        expunges: None,
        moves: None,
        removes: None,
        ends: None,
        ending: None,
        problem: None,
        at: at(1_000),
    }
}

pub(super) async fn advance(setting: &Setting, bite: Bite) -> Bitten {
    setting.store.advance_job(bite).await.expect("advances")
}

async fn of_event(setting: &Setting, event: EventId) -> Vec<(DeliveryId, DeliveryState)> {
    let filter = DeliveryFilter { event: Some(event), ..DeliveryFilter::default() };
    let oldest = Listing { order: Order::OldestFirst, after: None, limit: 100 };
    let page = setting.store.deliveries(setting.tenant, filter, oldest).await.expect("a list");
    page.items.iter().map(|delivery| (delivery.id, delivery.state)).collect()
}

/// As they were written down, and only for their tenant.
pub async fn jobs_read_back_as_written(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (one, two) = (begun(&setting).await, begun(&setting).await);
    let other = setting.other_tenant().await;
    let store = &setting.store;
    assert_eq!(store.job(setting.tenant, one.id).await.expect("answers"), Some(one.clone()));
    assert_eq!(store.job(other, one.id).await.expect("answers"), None);
    let again = store.create_job(one.clone(), None, Vec::new()).await;
    assert!(matches!(again, Err(Error::Refused(Refusal::AlreadyExists))), "{again:?}");
    let page = store.jobs(setting.tenant, Listing::newest(1)).await.expect("a page");
    assert_eq!((&page.items[..], page.more), (&[two.clone()][..], true));
    let listing = Listing { after: page.last, ..Listing::newest(5) };
    let page = store.jobs(setting.tenant, listing).await.expect("a page");
    assert_eq!((&page.items[..], page.more), (&[one.clone()][..], false));
    assert!(store.jobs(other, Listing::newest(5)).await.expect("a page").items.is_empty());
    let running = store.running_jobs(10).await.expect("answers");
    assert_eq!(running, [(one.clone(), None), (two.clone(), None)]);
    let foreign = store.cancel_job(other, one.id, at(5), None).await;
    assert!(matches!(foreign, Err(Error::Refused(Refusal::NotFound))), "{foreign:?}");
    let cancelled = store.cancel_job(setting.tenant, one.id, at(5), None).await.expect("cancelled");
    assert_eq!((cancelled.state, cancelled.finished_at), (JobState::Cancelled, Some(at(5))));
    let again = store.cancel_job(setting.tenant, one.id, at(9), None).await.expect("answers");
    assert_eq!(again, cancelled, "what has ended stays as it is");
    let setting = setting.reopen(fixture).await;
    let running = setting.store.running_jobs(10).await.expect("answers");
    assert_eq!(running, [(two, None)]);
}

/// A subscription that begins in the past is there together with its job, or not at all.
pub async fn a_subscription_comes_with_its_job(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let before = setting.version_of(setting.tenant).await;
    let new = subscription(setting.tenant);
    let job = job(setting.tenant);
    let version = setting.store.create_job(job.clone(), Some(created(&new)), Vec::new()).await;
    let version = version.expect("created").expect("a version");
    assert!(version > before);
    assert_eq!(setting.version_of(setting.tenant).await, version);
    setting.publish_one(new.id).await;
    // The same subscription once more is refused, and so is its job.
    let second = Job { id: JobId::new(at(0), unique().into()), ..job.clone() };
    let refused = setting.store.create_job(second.clone(), Some(created(&new)), Vec::new()).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::AlreadyExists))), "{refused:?}");
    assert_eq!(setting.store.job(setting.tenant, second.id).await.expect("answers"), None);
}

/// Exactly one delivery of an event to a subscription, however often it is asked for.
pub async fn what_was_missed_is_made_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(old, None)]).await;
    let event = published.event.id;
    let job = begun(&setting).await;
    let made = redelivery(event, new, ReplayStatus::Missed);
    let twice = vec![made.clone(), redelivery(event, new, ReplayStatus::Missed)];
    let bitten = advance(&setting, bite(&job, None, 1, twice)).await;
    assert_eq!((bitten.done, &bitten.subscriptions[..]), (1, &[new][..]));
    let more = redelivery(event, new, ReplayStatus::All);
    let bitten = advance(&setting, bite(&job, Some(Place(1)), 2, vec![more])).await;
    assert_eq!(bitten.done, 0, "it is on its way");
    let all = of_event(&setting, event).await;
    assert_eq!(
        all,
        [(published.deliveries[0], DeliveryState::Pending), (made.id, DeliveryState::Pending)]
    );
    let row = setting.look(made.id).await;
    assert_eq!((row.event, row.subscription, row.due_at), (event, new, at(1_000)));
    assert_eq!((row.budget_began, row.attempts), (at(1_000), 0), "its age begins now");
    assert!(row.is_by_hand(&published.event));
    let works = setting.pending(new, at(1_000)).await;
    assert_eq!((works.len(), works[0].event.id), (1, event));
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.pending), (1, 2));
    setting.record(made.id, delivered(), at(2_000)).await;
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.pending, counts.delivered), (1, 1));
    let setting = setting.reopen(fixture).await;
    assert_eq!(of_event(&setting, event).await[1], (made.id, DeliveryState::Delivered));
    let stored = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("it");
    assert_eq!((stored.seen, stored.done, stored.state), (3, 1, JobState::Running));
    let running = setting.store.running_jobs(5).await.expect("answers");
    assert_eq!(running[0].1, Some(Place(2)), "it goes on where it stood");
}

/// What ended is tried again as its status says, with a fresh budget.
pub async fn what_ended_is_tried_again(fixture: &dyn Fixture) {
    for (status, wanted) in [
        (ReplayStatus::All, [true, true]),
        (ReplayStatus::Missed, [false, false]),
        (ReplayStatus::Failed, [true, false]),
        (ReplayStatus::Delivered, [false, true]),
    ] {
        let setting = Setting::new(fixture).await;
        let (a, b) = (setting.subscribe().await, setting.subscribe().await);
        let published = setting.publish(&[(a, None), (b, None)]).await;
        setting.record(published.deliveries[0], dead_skip(), at(5)).await;
        setting.record(published.deliveries[1], delivered(), at(5)).await;
        let job = begun(&setting).await;
        let deeds = [a, b].map(|to| redelivery(published.event.id, to, status)).to_vec();
        let bitten = advance(&setting, bite(&job, None, 1, deeds)).await;
        assert_eq!(bitten.done, wanted.iter().filter(|again| **again).count(), "{status:?}");
        for (id, again) in published.deliveries.iter().zip(wanted) {
            let now = setting.look(*id).await;
            assert_eq!(now.state == DeliveryState::Pending, again, "{status:?}");
            if again {
                assert_eq!((now.spent(), now.attempts, now.due_at), (0, 1, at(1_000)));
            }
        }
        let all = of_event(&setting, published.event.id).await;
        assert_eq!(all.len(), 2, "{status:?}: no second delivery");
    }
}

/// A bite that was prepared on another state of the job does nothing; nor does one of a job that has ended.
pub async fn a_late_bite_does_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let (one, two) = (setting.publish(&[(old, None)]).await, setting.publish(&[(old, None)]).await);
    let job = begun(&setting).await;
    let deed =
        |published: &Published| vec![redelivery(published.event.id, new, ReplayStatus::Missed)];
    assert_eq!(advance(&setting, bite(&job, None, 7, deed(&one))).await.done, 1);
    let late = advance(&setting, bite(&job, None, 9, deed(&two))).await;
    assert_eq!((late.done, late.state), (0, JobState::Running));
    let ends = Some(JobState::Done);
    let last = Bite { ends, ..bite(&job, Some(Place(7)), 8, deed(&two)) };
    let bitten = advance(&setting, last).await;
    assert_eq!((bitten.done, bitten.state), (1, JobState::Done));
    let three = setting.publish(&[(old, None)]).await;
    let over = advance(&setting, bite(&job, Some(Place(8)), 9, deed(&three))).await;
    assert_eq!((over.done, over.state), (0, JobState::Done));
    let stored = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("it");
    assert_eq!((stored.finished_at, stored.done, stored.seen), (Some(at(1_000)), 2, 2));
    assert!(setting.store.running_jobs(5).await.expect("answers").is_empty());
    let unknown = Bite { job: JobId::new(at(0), u128::MAX), ..bite(&job, None, 1, vec![]) };
    let refused = setting.store.advance_job(unknown).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::NotFound))), "{refused:?}");
}

/// What is gone, or somebody else's, is passed over; the rest is done.
pub async fn what_cannot_be_done_is_passed_over(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let foreign = setting.subscribe_for(other).await;
    let (old, gone, new) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(old, None)]).await;
    setting.unsubscribe(gone, at(2)).await;
    let leased = setting.publish_one(new).await;
    setting.record(leased, dead_skip(), at(3)).await;
    let job = begun(&setting).await;
    let event = published.event.id;
    let nowhere = EventId::new(at(0), u128::MAX);
    let deeds = vec![
        redelivery(event, foreign, ReplayStatus::All),
        redelivery(event, gone, ReplayStatus::All),
        redelivery(nowhere, new, ReplayStatus::All),
        redelivery(event, SubscriptionId::new(at(0), u128::MAX), ReplayStatus::All),
        redelivery(event, new, ReplayStatus::All),
    ];
    let bitten = advance(&setting, bite(&job, None, 1, deeds)).await;
    assert_eq!((bitten.done, bitten.subscriptions), (1, vec![new]));
}

/// One that is made comes last in its lane; those of a lane keep their order.
pub async fn made_deliveries_come_last_in_their_lane(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let past = [setting.publish(&[(old, None)]).await, setting.publish(&[(old, None)]).await];
    let head = setting.publish_in(new, whole()).await;
    let job = begun(&setting).await;
    let lane = Some(Lane::Subscription);
    let deeds: Vec<Redelivery> = past
        .iter()
        .map(|published| redelivery(published.event.id, new, ReplayStatus::Missed))
        .map(|deed| Redelivery { lane: lane.clone(), ..deed })
        .collect();
    let made: Vec<DeliveryId> = deeds.iter().map(|deed| deed.id).collect();
    assert_eq!(advance(&setting, bite(&job, None, 1, deeds)).await.done, 2);
    let after = setting.publish_in(new, whole()).await;
    assert_eq!(setting.ready(new).await, [head]);
    for (head, next) in [(head, made[0]), (made[0], made[1]), (made[1], after)] {
        let promoted = setting.record(head, delivered(), at(3_000)).await;
        assert_eq!(promoted.map(|work| work.delivery.id), Some(next));
    }
}

/// A delivery of a past event keeps its event from being pruned, and goes with it.
pub async fn made_deliveries_are_pruned_with_their_event(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(old, None)]).await;
    setting.record(published.deliveries[0], delivered(), at(5)).await;
    let job = begun(&setting).await;
    let deed = redelivery(published.event.id, new, ReplayStatus::Missed);
    let made = deed.id;
    let ends = Some(JobState::Done);
    advance(&setting, Bite { ends, ..bite(&job, None, 1, vec![deed]) }).await;
    let prune = async |until: Timestamp| {
        let prune = Prune {
            now: until,
            ended_before: until,
            dead_before: until,
            keys_before: at(0),
            recalls_before: at(0),
            audit_before: at(0),
            limit: 100,
        };
        let mut events = 0;
        for _ in 0..20 {
            let pruned = setting.store.prune(prune).await.expect("prunes");
            events += pruned.events;
            if !pruned.more {
                break;
            }
        }
        events
    };
    assert_eq!(prune(at(900)).await, 0, "unfinished work keeps it");
    setting.record(made, failed(at(2_000)), at(1_500)).await;
    assert_eq!(prune(at(100_000)).await, 0);
    assert_eq!(
        setting.store.job(setting.tenant, job.id).await.expect("answers"),
        None,
        "ended long ago"
    );
    setting.record(made, delivered(), at(2_000)).await;
    assert_eq!(prune(at(2_000)).await, 0, "ended too recently");
    assert_eq!(prune(at(2_001)).await, 1);
    assert_eq!(setting.store.delivery(setting.tenant, made).await.expect("answers"), None);
    assert!(setting.store.attempts(setting.tenant, made).await.expect("answers").is_empty());
    let counts = setting.store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (0, 0));
}

/// A job that cannot go on says why, also after a restart.
pub async fn a_failed_job_says_why(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let job = begun(&setting).await;
    let (ends, problem) = (Some(JobState::Failed), Some("the subscription was deleted".to_owned()));
    let last = Bite { ends, problem: problem.clone(), ..bite(&job, None, 1, Vec::new()) };
    assert_eq!(advance(&setting, last.clone()).await.state, JobState::Failed);
    // What has ended stays as it is.
    let other = Bite { expected: Some(Place(1)), problem: Some("other".to_owned()), ..last };
    assert_eq!(advance(&setting, other).await.state, JobState::Failed);
    let setting = setting.reopen(fixture).await;
    let found = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("kept");
    assert_eq!((found.state, found.finished_at), (JobState::Failed, Some(at(1_000))));
    assert_eq!(found.problem, problem);
}

/// Many events, and what became of them for some subscriptions, are asked for at once.
pub async fn events_and_states_are_read_in_batches(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let foreign = setting.subscribe_for(other).await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(setting.publish(&[(old, None)]).await);
    }
    let nowhere = EventId::new(at(0), u128::MAX);
    let ids = vec![events[2].event.id, nowhere, events[0].event.id, events[2].event.id];
    let found = setting.store.events_by_id(setting.tenant, ids.clone()).await.expect("answers");
    let wanted =
        [&events[2], &events[0], &events[2]].map(|published| Event::clone(&published.event));
    assert_eq!(found, wanted, "in the order of the ids, whole");
    let strangers = setting.store.events_by_id(other, ids).await.expect("answers");
    assert!(strangers.is_empty(), "of another tenant");
    assert_eq!(setting.store.events_by_id(setting.tenant, vec![]).await.expect("answers"), []);

    setting.record(events[0].deliveries[0], delivered(), at(5)).await;
    setting.record(events[1].deliveries[0], dead_skip(), at(5)).await;
    let job = begun(&setting).await;
    let deed = redelivery(events[0].event.id, new, ReplayStatus::Missed);
    advance(&setting, bite(&job, None, 1, vec![deed])).await;
    let pairs = vec![
        (events[1].event.id, old),
        (events[0].event.id, new),
        (events[0].event.id, old),
        (events[2].event.id, old),
        (events[2].event.id, new),
        (events[2].event.id, foreign),
        (nowhere, old),
        (events[1].event.id, old),
    ];
    let states = setting.store.delivery_states(setting.tenant, pairs.clone()).await;
    let dead = setting.look(events[1].deliveries[0]).await.state;
    assert!(matches!(dead, DeliveryState::Dead(_)));
    let wanted = [
        Some(dead),
        Some(DeliveryState::Pending),
        Some(DeliveryState::Delivered),
        Some(DeliveryState::Pending),
        None,
        None,
        None,
        Some(dead),
    ];
    assert_eq!(states.expect("answers"), wanted);
    let strangers = setting.store.delivery_states(other, pairs).await.expect("answers");
    assert_eq!(strangers, [None; 8]);
    assert_eq!(setting.store.delivery_states(other, vec![]).await.expect("answers"), []);
}

/// A tenant with many jobs leaves room for the jobs of others.
pub async fn running_jobs_leave_nobody_out(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut many = Vec::new();
    for _ in 0..5 {
        many.push(begun(&setting).await.id);
    }
    let other = setting.other_tenant().await;
    let mut few = Vec::new();
    for _ in 0..2 {
        let job = job(other);
        setting.store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
        few.push(job.id);
    }
    let running = async |limit: usize| {
        let found = setting.store.running_jobs(limit).await.expect("answers");
        found.into_iter().map(|(job, _)| job.id).collect::<Vec<JobId>>()
    };
    assert_eq!(running(3).await, [many[0], few[0], many[1]]);
    assert_eq!(running(100).await, [many[0], few[0], many[1], few[1], many[2], many[3], many[4]]);
}

/// Those that came with it, and those that were made later.
pub async fn fan_outs_count_all_deliveries_of_an_event(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let (a, b, late) =
        (setting.subscribe().await, setting.subscribe().await, setting.subscribe().await);
    let two = setting.publish(&[(a, None), (b, None)]).await;
    let none = setting.publish(&[]).await;
    setting.record(two.deliveries[0], delivered(), at(5)).await;
    let nowhere = EventId::new(at(0), u128::MAX);
    let ids = vec![none.event.id, two.event.id, nowhere, two.event.id];
    let counts = setting.store.fan_outs(setting.tenant, ids.clone()).await.expect("answers");
    assert_eq!(counts, [0, 2, 0, 2]);
    let job = begun(&setting).await;
    let deed = |event| redelivery(event, late, ReplayStatus::Missed);
    let deeds = vec![deed(none.event.id), deed(two.event.id)];
    assert_eq!(advance(&setting, bite(&job, None, 1, deeds)).await.done, 2);
    let counts = setting.store.fan_outs(setting.tenant, ids.clone()).await.expect("answers");
    assert_eq!(counts, [1, 3, 0, 3]);
    assert_eq!(setting.store.fan_outs(other, ids).await.expect("answers"), [0; 4]);
    assert_eq!(setting.store.fan_outs(setting.tenant, vec![]).await.expect("answers"), [0; 0]);
}

/// Those that came with it and those that were made later, by what became of them, up to a limit.
pub async fn tallies_tell_what_became_of_an_events_deliveries(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mut to = Vec::new();
    for _ in 0..5 {
        to.push((setting.subscribe().await, None));
    }
    let late = setting.subscribe().await;
    let (five, none) = (setting.publish(&to).await, setting.publish(&[]).await);
    setting.record(five.deliveries[0], delivered(), at(5)).await;
    setting.record(five.deliveries[1], delivered(), at(5)).await;
    setting.record(five.deliveries[2], dead_skip(), at(5)).await;
    setting.unsubscribe(to[3].0, at(6)).await;
    let job = begun(&setting).await;
    let deeds = vec![redelivery(five.event.id, late, ReplayStatus::Missed)];
    assert_eq!(advance(&setting, bite(&job, None, 1, deeds)).await.done, 1);
    let nowhere = EventId::new(at(0), u128::MAX);
    let ids = vec![none.event.id, five.event.id, nowhere, five.event.id];
    let all = EventTally { pending: 2, delivered: 2, dead: 1, cancelled: 1, more: false };
    let nothing = EventTally::default();
    let ask = async |tenant, limit| {
        setting.store.event_tallies(tenant, ids.clone(), limit).await.expect("answers")
    };
    assert_eq!(ask(setting.tenant, 6).await, [nothing, all, nothing, all]);
    assert_eq!(ask(other, 6).await, [nothing; 4], "of another tenant");
    let some = ask(setting.tenant, 4).await[1];
    let EventTally { pending, delivered, dead, cancelled, more } = some;
    assert_eq!((pending + delivered + dead + cancelled, more), (4, true), "{some:?}");
    assert_eq!(ask(setting.tenant, 4).await[0], nothing);
    setting.store.forget_delivery(setting.tenant, five.deliveries[0], at(9)).await.expect("gone");
    let left = EventTally { delivered: 1, ..all };
    assert_eq!(ask(setting.tenant, 5).await[1], left, "what is gone counts no more");
}

/// Deeds of one event in one bite, in any order, each find their own delivery, as the ones before left it.
pub async fn several_deliveries_of_one_event_are_tried_again_at_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut to = Vec::new();
    for _ in 0..5 {
        to.push(setting.subscribe().await);
    }
    let all: Vec<_> = to.iter().map(|id| (*id, None)).collect();
    let (one, two) = (setting.publish(&all[..4]).await, setting.publish(&all[..4]).await);
    for delivery in one.deliveries.iter().chain(&two.deliveries[..2]) {
        setting.record(*delivery, dead_skip(), at(5)).await;
    }
    let job = begun(&setting).await;
    let again = |event: EventId, at: usize| redelivery(event, to[at], ReplayStatus::Failed);
    let (first, second) = (one.event.id, two.event.id);
    let deeds = vec![
        again(first, 3),
        again(first, 0),
        again(second, 1),
        again(first, 3),
        again(second, 2),
        again(second, 4),
        redelivery(first, to[4], ReplayStatus::Missed),
        redelivery(first, to[4], ReplayStatus::Missed),
    ];
    let bitten = advance(&setting, bite(&job, None, 1, deeds)).await;
    assert_eq!(bitten.done, 4, "what is twice in a bite is done once");
    let pending = |states: &[(DeliveryId, DeliveryState)]| -> Vec<bool> {
        states.iter().map(|(_, state)| *state == DeliveryState::Pending).collect()
    };
    let states = of_event(&setting, first).await;
    assert_eq!(pending(&states), [true, false, false, true, true]);
    assert_eq!(pending(&of_event(&setting, second).await), [false, true, true, true]);
}
