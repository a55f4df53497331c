//! Jobs beside everything else: whose turn it is, how fast all of them together are, and what they hold up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Budget, Clock, DeliveryFilter, Job, JobId, JobState, JobWork, Labels, OutcomeFilter,
    RedriveFilter, RedriveState, ReplayStatus, Selection, Subscription, SubscriptionId, TenantId,
    Timestamp, TopicName,
};
use posthorn_engine::{Engine, NewBulk, NewReplay, NewSubscription, ReplayCount};
use posthorn_store::{CatalogChange, Error, Store};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

pub(crate) fn replay(subscription: SubscriptionId, per_second: u32) -> NewReplay {
    NewReplay {
        subscription: Some(subscription),
        events: Selection::default(),
        status: ReplayStatus::Missed,
        per_second,
        created_by: "tests".to_owned(),
    }
}

/// A tenant with so many events, and a subscription that has none of them.
pub(crate) async fn history(engine: &Engine, tenant: TenantId, events: usize) -> SubscriptionId {
    let name = TopicName::new("orders").expect("a name");
    let made = engine.put_topic(tenant, name, String::new(), vec![], Labels::default()).await;
    made.expect("a topic");
    for n in 0..events {
        engine.publish(tenant, publish(&n.to_string(), None)).await.expect("accepted");
    }
    // A replay is about what was accepted before it began.
    rest(1).await;
    let new = NewSubscription { destination: "https://late/".into(), ..NewSubscription::default() };
    engine.create_subscription(tenant, new).await.expect("a subscription").0.subscription.id
}

fn unavailable() -> Error {
    Error::Unavailable { context: "test", source: None }
}

/// Has the store do no bites.
pub(crate) fn refuse_bites(house: &House) {
    house.store.before_bites(Arc::new(|_| Box::pin(async { Err(unavailable()) })));
}

/// When which job looked at how many events.
pub(crate) type Bites = Arc<Mutex<Vec<(Timestamp, JobId, u64)>>>;

/// Has the store note all bites, each of which takes so long.
pub(crate) fn note_bites(house: &House, takes: Duration) -> Bites {
    let bites = Bites::default();
    let (noted, clock) = (Arc::clone(&bites), Arc::clone(&house.clock));
    house.store.before_bites(Arc::new(move |bite| {
        let now = clock.now();
        noted.lock().push((now, bite.job, bite.seen));
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(())
        })
    }));
    bites
}

pub(crate) async fn job(house: &House, tenant: TenantId, id: JobId) -> Job {
    house.store.job(tenant, id).await.expect("answers").expect("there")
}

#[tokio::test(start_paused = true)]
async fn chores_do_not_wait_for_jobs() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    subscribe(&engine, "https://a/", json!({"schedule": {"max_attempts": 1}})).await;
    for n in 0..50 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(600).await;
    assert_eq!(house.counts().await.dead, 50);
    let late = subscribe(&engine, "https://late/", json!({})).await;
    let begun = engine.create_replay(TENANT, replay(late.subscription.id, 1)).await;
    assert_eq!(begun.expect("begins").state, JobState::Running);
    // From now on, bites take for ever.
    house.store.before_bites(Arc::new(|_| Box::pin(std::future::pending())));
    rest(5).await;
    let redrive = engine.create_redrive(TENANT, RedriveFilter::default(), 10).await;
    let redrive = redrive.expect("begins");
    rest(30).await;
    let done = house.store.redrive(TENANT, redrive.id).await.expect("answers").expect("there");
    assert_eq!((done.state, done.moved), (RedriveState::Done, 50));
}

/// Their times of creation stay, so each matches again as soon as it has failed again.
#[tokio::test(start_paused = true)]
async fn a_retry_of_many_tries_each_once_however_often_it_fails() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(503)));
    let once = json!({"schedule": {"max_attempts": 1}});
    subscribe(&engine, "https://a/", once).await;
    for n in 0..60 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(600).await;
    assert_eq!((house.counts().await.dead, house.receivers.of("https://a/").len()), (60, 60));
    let deliveries = DeliveryFilter {
        outcome: Some(OutcomeFilter::Status(503, 503)),
        ..DeliveryFilter::default()
    };
    let new =
        NewBulk { wish: Wish::Retry, deliveries, per_second: 5, created_by: "tests".to_owned() };
    let count = engine.count_bulk(TENANT, new.clone()).await.expect("counted");
    assert_eq!((count.count, count.complete), (60, true));
    let begun = engine.create_bulk(TENANT, new).await.expect("begins");
    assert_eq!(begun.state, JobState::Running);
    rest(5).await;
    let tried = house.receivers.of("https://a/").len() - 60;
    assert!((1..60).contains(&tried), "at its pace, not {tried} at once");
    let running = job(&house, TENANT, begun.id).await;
    assert!(running.state == JobState::Running && house.counts().await.dead > 50, "they fail");
    rest(600).await;
    let ended = job(&house, TENANT, begun.id).await;
    assert_eq!((ended.state, ended.seen, ended.done), (JobState::Done, 60, 60));
    let mut bodies = house.receivers.bodies("https://a/");
    assert_eq!((bodies.len(), house.counts().await.dead), (120, 60));
    bodies.sort_unstable();
    assert!(bodies.chunks(2).all(|two| two[0] == two[1]), "each came twice in all: {bodies:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_many_jobs_does_not_delay_the_job_of_another() {
    let house = House::new();
    let engine = house.engine(1).await;
    let small = engine.create_tenant("small".to_owned()).await.expect("a tenant").id;
    let (greedy, modest) = (history(&engine, TENANT, 200).await, history(&engine, small, 50).await);
    refuse_bites(&house);
    for _ in 0..100 {
        engine.create_replay(TENANT, replay(greedy, 10)).await.expect("begins");
    }
    let own = engine.create_replay(small, replay(modest, 10)).await.expect("begins").id;
    let bites = note_bites(&house, Duration::from_millis(50));
    rest(8).await;
    let noted = bites.lock().clone();
    let first = noted.iter().position(|(_, job, _)| *job == own).expect("it had its turn");
    assert!(first <= 1, "after one bite of the other tenant, not after {first}");
    let ended = job(&house, small, own).await;
    assert_eq!((ended.state, ended.done), (JobState::Done, 50), "at its pace: 10 a second");
    let others: std::collections::BTreeSet<JobId> =
        noted.iter().map(|(_, job, _)| *job).filter(|job| *job != own).collect();
    assert!(others.len() >= 50, "those of one tenant take turns too: {}", others.len());
}

#[tokio::test(start_paused = true)]
async fn all_jobs_together_have_a_pace() {
    let house = House::new();
    let engine = house.engine(1).await;
    let late = history(&engine, TENANT, 2_000).await;
    refuse_bites(&house);
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(engine.create_replay(TENANT, replay(late, 10_000)).await.expect("begins").id);
    }
    let bites = note_bites(&house, Duration::ZERO);
    rest(20).await;
    for id in ids {
        assert_eq!(job(&house, TENANT, id).await.state, JobState::Done);
    }
    let noted = bites.lock().clone();
    assert_eq!(noted.iter().map(|(_, _, seen)| seen).sum::<u64>(), 20_000);
    for (begin, ..) in &noted {
        let until = begin.plus(posthorn_domain::Span::from_secs(1));
        let within = noted.iter().filter(|(at, ..)| at >= begin && *at < until);
        let seen: u64 = within.map(|(_, _, seen)| seen).sum();
        assert!(seen <= 5_200, "{seen} events in a second");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_stops_no_other_and_goes_on_later() {
    let house = House::new();
    let engine = house.engine(1).await;
    let late = history(&engine, TENANT, 30).await;
    refuse_bites(&house);
    let broken = engine.create_replay(TENANT, replay(late, 10)).await.expect("begins").id;
    let fine = engine.create_replay(TENANT, replay(late, 10)).await.expect("begins").id;
    house.store.before_bites(Arc::new(move |bite| {
        let result = if bite.job == broken { Err(unavailable()) } else { Ok(()) };
        Box::pin(std::future::ready(result))
    }));
    rest(5).await;
    assert_eq!(job(&house, TENANT, fine).await.state, JobState::Done);
    assert_eq!(job(&house, TENANT, broken).await.state, JobState::Running);
    house.store.before_bites(Arc::new(|_| Box::pin(std::future::ready(Ok(())))));
    rest(5).await;
    assert_eq!(job(&house, TENANT, broken).await.state, JobState::Done);
    assert_eq!(house.counts().await.delivered, 30, "each event once");
}

#[tokio::test(start_paused = true)]
async fn jobs_wait_while_the_disk_is_full() {
    let house = House::new();
    let engine = house.engine(1).await;
    let late = history(&engine, TENANT, 30).await;
    let begun = engine.create_replay(TENANT, replay(late, 10)).await.expect("begins");
    assert_eq!(begun.done, 10, "the first go is made at once");
    engine.admission().set_disk_full(true);
    rest(10).await;
    assert_eq!(job(&house, TENANT, begun.id).await.done, 10);
    engine.admission().set_disk_full(false);
    rest(5).await;
    let ended = job(&house, TENANT, begun.id).await;
    assert_eq!((ended.state, ended.done), (JobState::Done, 30));
}

#[tokio::test(start_paused = true)]
async fn counts_say_what_a_replay_would_do() {
    let (house, engine) = House::open().await;
    topic(&engine).await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::ZERO, answered(if nth % 3 == 0 { 500 } else { 200 }))
    });
    let once = json!({"schedule": {"max_attempts": 1}});
    let a = subscribe(&engine, "https://a/", once).await.subscription.id;
    for n in 0..450 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(600).await;
    let late = subscribe(&engine, "https://late/", json!({})).await.subscription.id;
    let count = async |subscription: Option<SubscriptionId>, status: ReplayStatus| {
        let new = NewReplay { subscription, status, ..replay(a, 10) };
        engine.count_replay(TENANT, new).await.expect("counts")
    };
    let whole = |count: u64, seen: u64| ReplayCount { count, seen, complete: true };
    assert_eq!(count(Some(late), ReplayStatus::Missed).await, whole(450, 450));
    assert_eq!(count(Some(a), ReplayStatus::Missed).await, whole(0, 450));
    assert_eq!(count(Some(a), ReplayStatus::Failed).await, whole(150, 150), "no other is read");
    assert_eq!(count(Some(a), ReplayStatus::Delivered).await, whole(300, 300));
    assert_eq!(count(Some(late), ReplayStatus::Failed).await, whole(0, 0));
    assert_eq!(count(Some(a), ReplayStatus::All).await, whole(450, 450));
    assert_eq!(count(None, ReplayStatus::Failed).await, whole(150, 150));
    assert_eq!(count(None, ReplayStatus::Delivered).await, whole(300, 300));
}

/// A subscription that begins in the past and its job are written at once. Whoever is on duty may find the job
/// before it has heard of the subscription.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_known_before_its_subscription_does_not_fail() {
    let house = House::new();
    let engine = house.engine(1).await;
    let like = history(&engine, TENANT, 30).await;
    let like = engine.catalog().subscription(TENANT, like).expect("there").subscription.clone();
    let now = house.clock.now();
    let new = Subscription { id: SubscriptionId::new(now, 7), ..like };
    let job = |number, work| Job {
        id: JobId::new(now, number),
        tenant: TENANT,
        work,
        per_second: 100,
        state: JobState::Running,
        seen: 0,
        done: 0,
        created_by: "another node".to_owned(),
        created_at: now,
        finished_at: None,
        problem: None,
    };
    let (events, status) = (Selection::default(), ReplayStatus::Missed);
    let first = job(
        1,
        JobWork::Replay { subscription: Some(new.id), events, status, budget: Budget::Fresh },
    );
    let create = CatalogChange::CreateSubscription(Box::new(new.clone()));
    // Nobody is told: this node hears of the catalog by its next poll.
    house.store.create_job(first.clone(), Some(create), vec![]).await.expect("written");
    rest(2).await;
    let ended = self::job(&house, TENANT, first.id).await;
    assert_eq!((ended.state, ended.problem, ended.done), (JobState::Done, None, 30));

    let other = Subscription { id: SubscriptionId::new(now, 8), ..new };
    let event = house.store.all_deliveries()[0].event;
    let second = job(2, JobWork::Deliver { event, subscription: other.id, budget: Budget::Fresh });
    let create = CatalogChange::CreateSubscription(Box::new(other.clone()));
    house.store.create_job(second.clone(), Some(create), vec![]).await.expect("written");
    rest(2).await;
    let ended = self::job(&house, TENANT, second.id).await;
    assert_eq!((ended.state, ended.problem, ended.done), (JobState::Done, None, 1));

    // One that is deleted is gone all the same.
    engine.delete_subscription(TENANT, other.id).await.expect("deleted");
    let (events, status) = (Selection::default(), ReplayStatus::Missed);
    let third = job(
        3,
        JobWork::Replay { subscription: Some(other.id), events, status, budget: Budget::Fresh },
    );
    house.store.create_job(third.clone(), None, vec![]).await.expect("written");
    rest(2).await;
    assert_eq!(self::job(&house, TENANT, third.id).await.state, JobState::Failed);
}
