//! Jobs while others work on the same events: nothing is made twice, lost, or out of order, and nobody waits in
//! a circle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use posthorn_conformance::builders::{Setting, at, delivered, lane, subscription, tenant, unique};
use posthorn_domain::{
    DeliveryId, DeliveryState, EventId, Job, JobId, JobState, JobWork, Lane, ReplayStatus,
    Selection, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    Bite, CatalogChange, Counts, DeliveryFilter, Error, Listing, Order, Period, Place, Prune,
    Recorded, Redelivery, Refusal, Store,
};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::fixture::{Databases, connect, raw, until_somebody_waits};
use crate::nodes::{LANES, STRESS, publish, success};

pub(crate) fn job(tenant: TenantId) -> Job {
    Job {
        id: JobId::new(at(0), unique().into()),
        tenant,
        work: JobWork::Replay {
            subscription: None,
            events: Selection::default(),
            status: ReplayStatus::All,
            budget: posthorn_domain::Budget::Fresh,
        },
        per_second: 50,
        state: JobState::Running,
        seen: 0,
        done: 0,
        created_by: "key_1".to_owned(),
        created_at: at(0),
        finished_at: None,
        problem: None,
    }
}

pub(crate) fn redelivery(event: EventId, to: SubscriptionId, status: ReplayStatus) -> Redelivery {
    let id = DeliveryId::new(at(0), unique().into());
    Redelivery { event, subscription: to, id, lane: None, status }
}

pub(crate) fn bite(job: JobId, deeds: Vec<Redelivery>, when: Timestamp) -> Bite {
    let seen = deeds.len() as u64;
    Bite {
        job,
        expected: None,
        cursor: None,
        seen,
        deeds,
        expunges: None,
        moves: None,
        removes: None,
        ends: Some(JobState::Done),
        ending: None,
        problem: None,
        at: when,
    }
}

/// A job that does all of this in one bite; how much it did.
async fn replay_on(
    store: &dyn Store,
    tenant: TenantId,
    deeds: Vec<Redelivery>,
    when: Timestamp,
) -> usize {
    let job = job(tenant);
    store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
    store.advance_job(bite(job.id, deeds, when)).await.expect("advances").done
}

pub(crate) async fn replay(setting: &Setting, deeds: Vec<Redelivery>, when: Timestamp) -> usize {
    replay_on(&*setting.store, setting.tenant, deeds, when).await
}

async fn past(setting: &Setting, number: usize) -> Vec<EventId> {
    let old = setting.subscribe().await;
    let mut events = Vec::new();
    for _ in 0..number {
        events.push(setting.publish(&[(old, None)]).await.event.id);
    }
    events
}

/// For each event, how many deliveries it has for a subscription.
async fn of_subscription(setting: &Setting, to: SubscriptionId) -> HashMap<EventId, usize> {
    let filter = DeliveryFilter { subscription: Some(to), ..DeliveryFilter::default() };
    let listing = Listing { order: Order::OldestFirst, after: None, limit: 1_000 };
    let page = setting.store.deliveries(setting.tenant, filter, listing).await.expect("a list");
    assert!(!page.more);
    let mut found = HashMap::new();
    for delivery in page.items {
        *found.entry(delivery.event).or_default() += 1;
    }
    found
}

/// How often the server had to end somebody who waited in a circle, once everybody has left.
pub(crate) async fn deadlocks(url: &str) -> i64 {
    let client = raw(url).await;
    let others = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    while client.query_one(others, &[]).await.expect("a count").get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let text = "select deadlocks from pg_stat_database where datname = current_database()";
    client.query_one(text, &[]).await.expect("a count").get(0)
}

fn place(event: EventId) -> Place {
    Place(u128::from_be_bytes(*event.as_bytes()))
}

/// Advances a job as a node does, five events at a time, until it is done.
async fn run(
    store: Arc<dyn Store>,
    job: JobId,
    events: Arc<Vec<EventId>>,
    to: SubscriptionId,
) -> usize {
    let mut done = 0;
    loop {
        let running = store.running_jobs(10).await.expect("jobs");
        let Some((_, cursor)) = running.into_iter().find(|(own, _)| own.id == job) else {
            return done;
        };
        let rest = events.iter().filter(|event| cursor.is_none_or(|after| place(**event) > after));
        let next: Vec<EventId> = rest.copied().take(5).collect();
        let ends = (next.len() < 5).then_some(JobState::Done);
        let deeds = next.iter().map(|event| redelivery(*event, to, ReplayStatus::All)).collect();
        let after = next.last().map(|event| place(*event)).or(cursor);
        let (seen, expected, cursor) = (next.len() as u64, cursor, after);
        let bite = Bite { expected, cursor, seen, ends, ..bite(job, deeds, at(1_000)) };
        done += store.advance_job(bite).await.expect("advances").done;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_that_advance_one_job_deliver_each_event_once() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (to, events) = (setting.subscribe().await, Arc::new(past(&setting, 103).await));
    let job = job(setting.tenant);
    setting.store.create_job(job.clone(), None, Vec::new()).await.expect("a new job");
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        nodes.push(tokio::spawn(run(store, job.id, Arc::clone(&events), to)));
    }
    let mut done = 0;
    for node in nodes {
        done += node.await.expect("a node");
    }
    assert_eq!(done, events.len());
    let found = of_subscription(&setting, to).await;
    assert_eq!(found.len(), events.len());
    assert!(found.values().all(|number| *number == 1), "{found:?}");
    let stored = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("it");
    assert_eq!((stored.state, stored.seen, stored.done), (JobState::Done, 103, 103));
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    assert_eq!((counts.events, counts.pending), (103, 206));
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
    drop(setting);
    assert_eq!(deadlocks(&url).await, 0);
}

/// Two jobs that mean the same event wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_jobs_make_one_delivery() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (to, events) = (setting.subscribe().await, past(&setting, 20).await);
    let mut client = raw(&url).await;
    let held = client.transaction().await.expect("a transaction");
    held.execute("select from event for update", &[]).await.expect("held");
    let mut jobs = Vec::new();
    for turn in 0..2 {
        let store = connect(&url).await;
        let status = ReplayStatus::Missed;
        let mut deeds: Vec<_> = events.iter().map(|event| redelivery(*event, to, status)).collect();
        if turn == 1 {
            deeds.reverse();
        }
        let owner = setting.tenant;
        jobs.push(tokio::spawn(async move { replay_on(&store, owner, deeds, at(9)).await }));
    }
    until_waiting(&raw(&url).await, 2).await;
    held.commit().await.expect("let go");
    let mut done = 0;
    for job in jobs {
        done += job.await.expect("a job");
    }
    assert_eq!(done, events.len());
    let found = of_subscription(&setting, to).await;
    assert!(found.len() == 20 && found.values().all(|number| *number == 1), "{found:?}");
}

/// Waits until so many wait for a lock.
pub(crate) async fn until_waiting(client: &Client, wanted: i64) {
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    while client.query_one(waiting, &[]).await.expect("a count").get::<_, i64>(0) < wanted {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn everything() -> Prune {
    Prune {
        now: at(0),
        ended_before: at(100),
        dead_before: at(100),
        keys_before: Timestamp::MIN,
        recalls_before: Timestamp::MIN,
        audit_before: Timestamp::MIN,
        limit: 100,
    }
}

/// An event that got a delivery while it was about to be removed stays, with all it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_gets_a_delivery_is_not_pruned() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let old = setting.subscribe().await;
    let published = setting.publish(&[(old, None)]).await;
    setting.record(published.deliveries[0], delivered(), at(5)).await;
    let mut client = raw(&url).await;
    let adding = client.transaction().await.expect("a transaction");
    let text = "update event set deliveries = deliveries || gen_random_uuid()";
    adding.execute(text, &[]).await.expect("another delivery");
    let store = connect(&url).await;
    let pruning = tokio::spawn(async move { store.prune(everything()).await.expect("prunes") });
    until_somebody_waits(&raw(&url).await).await;
    adding.commit().await.expect("added");
    assert_eq!(pruning.await.expect("the prune").events, 0);
    assert!(setting.store.event(setting.tenant, published.event.id).await.expect("it").is_some());
    setting.look(published.deliveries[0]).await;
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
}

/// One that is being removed gets none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_pruned_gets_no_delivery() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(old, None)]).await;
    let mut client = raw(&url).await;
    let pruning = client.transaction().await.expect("a transaction");
    pruning.batch_execute("delete from delivery_live; delete from event").await.expect("gone");
    let (store, owner) = (connect(&url).await, setting.tenant);
    let deeds = vec![redelivery(published.event.id, new, ReplayStatus::All)];
    let job = tokio::spawn(async move { replay_on(&store, owner, deeds, at(9)).await });
    until_somebody_waits(&raw(&url).await).await;
    pruning.commit().await.expect("removed");
    assert_eq!(job.await.expect("the job"), 0);
    assert!(of_subscription(&setting, new).await.is_empty());
}

/// Publishers and a job fill the same lanes while a node delivers: each lane in the order of its sequence, nobody
/// forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_beside_publishers_keeps_the_order_of_lanes() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (to, events) = (setting.subscribe().await, past(&setting, 200).await);
    let catalog = setting.version_of(setting.tenant).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut publishers = Vec::new();
    for _ in 0..2 {
        let store: Arc<dyn Store> = Arc::new(connect(&url).await);
        let (setting, stop) = (Arc::clone(&setting), Arc::clone(&stop));
        publishers.push(tokio::spawn(publish(setting, store, to, catalog, stop)));
    }
    let (store, owner, total) = (connect(&url).await, setting.tenant, events.len());
    let job = tokio::spawn(async move {
        let mut done = 0;
        for (number, some) in events.chunks(10).enumerate() {
            let deeds = some.iter().enumerate().map(|(own, event)| Redelivery {
                lane: lane(&format!("lane-{}", (number + own) % LANES)),
                ..redelivery(*event, to, ReplayStatus::Missed)
            });
            done += replay_on(&store, owner, deeds.collect(), at(500)).await;
        }
        done
    });
    let until = Instant::now() + STRESS;
    let (mut last, mut done): (HashMap<Option<Lane>, u64>, usize) = (HashMap::new(), 0);
    let mut wanted = None;
    let mut job = Some(job);
    loop {
        if Instant::now() > until && wanted.is_none() {
            stop.store(true, Ordering::Relaxed);
            let made = job.take().expect("the job").await.expect("the job");
            assert_eq!(made, total);
            let mut sum = made;
            for publisher in publishers.drain(..) {
                sum += publisher.await.expect("a publisher");
            }
            wanted = Some(sum);
        }
        let due = setting.pending(to, at(1_000)).await;
        if due.is_empty() && wanted.is_some() {
            break;
        }
        let records = due.iter().map(|work| {
            let before = last.insert(work.delivery.lane.clone(), work.delivery.seq).unwrap_or(0);
            assert!(before < work.delivery.seq, "{before} then {}", work.delivery.seq);
            success(&setting, to, work.delivery.id)
        });
        for reply in setting.store.record(records.collect()).await.expect("record") {
            assert!(matches!(reply, Recorded::Written { .. }), "{reply:?}");
            done += 1;
        }
    }
    assert_eq!(wanted, Some(done), "nobody is left behind");
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
    drop(setting);
    assert_eq!(deadlocks(&url).await, 0);
}

/// Does this and that by hand with the newest deliveries.
async fn operate(store: &dyn Store, setting: &Setting, stop: &AtomicBool) {
    let (owner, mut turn) = (setting.tenant, 0);
    while !stop.load(Ordering::Relaxed) {
        let page = store.deliveries(owner, DeliveryFilter::default(), Listing::newest(30)).await;
        for delivery in page.expect("a list").items {
            turn += 1;
            let done = match turn % 7 {
                0 => store.forget_delivery(owner, delivery.id, at(30)).await.map(drop),
                1 => store.cancel_delivery(owner, delivery.id, at(30)).await.map(drop),
                _ => store.retry_delivery(owner, delivery.id, at(30)).await.map(drop),
            };
            assert!(matches!(done, Ok(()) | Err(Error::Refused(_))), "{done:?}");
        }
    }
}

/// Delivers what is due; how much that was.
async fn deliver(setting: &Setting, whose: [SubscriptionId; 2]) -> usize {
    let mut due = 0;
    for to in whose {
        for work in setting.pending(to, at(1_000)).await {
            let mut record = success(setting, to, work.delivery.id);
            record.expected_attempts = work.delivery.attempts;
            record.expected_revival = work.delivery.revival;
            setting.store.record(vec![record]).await.expect("record");
            due += 1;
        }
    }
    due
}

/// Jobs, retries by hand, deliveries, removals by hand and pruning of the same few events, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_at_once_makes_nothing_twice() {
    let databases = Databases::default();
    let setting = Arc::new(Setting::new(&databases).await);
    let url = databases.url_of(&setting.store);
    let (old, to) = (setting.subscribe().await, setting.subscribe().await);
    let recent = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for turn in 0..2 {
        let (store, owner) = (connect(&url).await, setting.tenant);
        let (recent, stop) = (Arc::clone(&recent), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let mut events: Vec<EventId> = recent.lock().expect("not poisoned").clone();
                if turn == 1 {
                    events.reverse();
                }
                let deeds = events.iter().enumerate().flat_map(|(n, event)| {
                    let lane = lane(&format!("lane-{}", n % 3));
                    let new = redelivery(*event, to, ReplayStatus::All);
                    [redelivery(*event, old, ReplayStatus::All), Redelivery { lane, ..new }]
                });
                replay_on(&store, owner, deeds.collect(), at(20)).await;
            }
        }));
    }
    let (operator, own, stopped) = (connect(&url).await, Arc::clone(&setting), Arc::clone(&stop));
    tasks.push(tokio::spawn(async move { operate(&operator, &own, &stopped).await }));
    let (store, stopped) = (connect(&url).await, Arc::clone(&stop));
    tasks.push(tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            store.prune(everything()).await.expect("prunes");
        }
    }));
    for _ in 0..60 {
        for _ in 0..3 {
            let published = setting.publish(&[(old, None)]).await;
            let mut recent = recent.lock().expect("not poisoned");
            recent.push(published.event.id);
            let many = recent.len().saturating_sub(20);
            recent.drain(..many);
        }
        deliver(&setting, [old, to]).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a task");
    }
    for whose in [old, to] {
        let found = of_subscription(&setting, whose).await;
        assert!(found.values().all(|number| *number == 1), "{found:?}");
    }
    // What is listed is there, what is there is listed, and every lane that somebody waits in has a head.
    let client = raw(&url).await;
    let wrong = "with kept as (
            select id, event from delivery_live union all select id, event from delivery_done
        ), listed as (select unnest(deliveries) as id, id as event from event)
        select (select count(*) from (table kept except table listed) as a)
            + (select count(*) from (table listed except table kept) as b)
            + (select count(*) from delivery_live p where p.due_at = 9223372036854775807
                and not exists (select from delivery_live h where h.subscription = p.subscription
                    and h.lane = p.lane and h.due_at < 9223372036854775807)
                and not exists (select from lane_block b where b.subscription = p.subscription
                    and b.lane = p.lane))";
    assert_eq!(client.query_one(wrong, &[]).await.expect("a count").get::<_, i64>(0), 0);
    drop(client);
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
    // So all of it can come to its end, and go.
    while deliver(&setting, [old, to]).await > 0 {}
    while setting.store.prune(everything()).await.expect("prunes").more {}
    assert_eq!(setting.store.counts(None).await.expect("counts"), Counts::default());
    drop(setting);
    assert_eq!(deadlocks(&url).await, 0);
}

/// A delivery has the time of its event, also when its id is much younger.
#[tokio::test]
async fn a_delivery_made_later_is_found_by_the_time_of_its_event() {
    const DAYS: i64 = 86_400_000;
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let to = setting.subscribe().await;
    let event = past(&setting, 1).await[0];
    let id = DeliveryId::new(at(30 * DAYS), 7);
    let deed = Redelivery { id, ..redelivery(event, to, ReplayStatus::Missed) };
    assert_eq!(replay(&setting, vec![deed], at(30 * DAYS)).await, 1);
    let made = setting.look(id).await;
    assert_eq!((made.created_at, made.state), (at(0), DeliveryState::Pending));
    for (from, until, wanted) in [(0, 1, 1), (1, 31 * DAYS, 0), (-5, 0, 0)] {
        let created = Period { from: Some(at(from)), until: Some(at(until)) };
        let filter =
            DeliveryFilter { subscription: Some(to), created, ..DeliveryFilter::default() };
        let page = setting.store.deliveries(setting.tenant, filter, Listing::newest(9)).await;
        assert_eq!(page.expect("a list").items.len(), wanted, "from {from} until {until}");
    }
    // Lists of nobody else look so far for it.
    setting.other_tenant().await;
    let client = raw(&databases.url_of(&setting.store)).await;
    let rows = client.query("select later, last from replayed", &[]).await.expect("the table");
    let rows: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let [(later, last)] = rows[..] else { panic!("one tenant, not {rows:?}") };
    assert!((30 * DAYS..=60 * DAYS).contains(&later), "{later}");
    let made = at(30 * DAYS).as_millis();
    assert!((made..=made + 3_600_000).contains(&last), "{last}");
}

/// A refusal changes nothing, whichever part of it is refused.
#[tokio::test]
async fn a_job_that_is_refused_leaves_no_subscription() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let before = setting.version_of(setting.tenant).await;
    let known = job(setting.tenant);
    setting.store.create_job(known.clone(), None, Vec::new()).await.expect("a new job");
    let new = subscription(setting.tenant);
    let created = |new: &posthorn_domain::Subscription| {
        Some(CatalogChange::CreateSubscription(Box::new(new.clone())))
    };
    let refused = setting.store.create_job(known, created(&new), Vec::new()).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::AlreadyExists))), "{refused:?}");
    assert_eq!(setting.version_of(setting.tenant).await, before);
    let created = setting.store.create_job(job(setting.tenant), created(&new), Vec::new()).await;
    assert!(created.expect("created").is_some_and(|version| version > before));
    let stranger = setting.store.create_job(job(tenant().id), None, Vec::new()).await;
    assert!(matches!(stranger, Err(Error::Refused(Refusal::NotFound))), "{stranger:?}");
}
