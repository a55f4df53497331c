//! What jobs may cost: how much they look at, write and match at once, and how far back they may begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::builders;
use posthorn_domain::{
    CatalogVersion, Clock, DeliveryState, Event, EventId, EventType, JobState, Labels,
    ReplayStatus, Selection, Span, TenantId, Timestamp, TopicName,
};
use posthorn_engine::{
    Beginning, Engine, Error, Expunge, NewReplay, NewSubscription, Options, Publish, Quotas, Start,
};
use posthorn_store::{NewEvent, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};
use crate::jobs::{history, job, note_bites, refuse_bites, replay};

/// Events are kept for seven of these; each has a few minutes, so that what is too old is removed in time.
const UNIT: u64 = 300;

fn of_type(kind: &str) -> Publish {
    Publish { event_type: EventType::new(kind).expect("a type"), ..publish("1", None) }
}

/// A dead letter of long ago does not make a history of what is gone.
#[tokio::test(start_paused = true)]
async fn a_replay_begins_within_the_retention_whatever_is_left_of_before() {
    let house = House::new();
    let event_retention = Span::from_secs(7 * UNIT);
    let engine = house.engine_with(1, Options { event_retention, ..Options::default() }).await;
    topic(&engine).await;
    house.receivers.script("https://a/", |_, seen| {
        (Duration::ZERO, answered(if seen.body == "dead" { 500 } else { 200 }))
    });
    let once = json!({"schedule": {"max_attempts": 1}});
    let a = subscribe(&engine, "https://a/", once).await.subscription.id;
    engine.publish(TENANT, publish("dead", None)).await.expect("accepted");
    for n in 0..14 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        rest(UNIT).await;
    }
    let counts = house.counts().await;
    assert_eq!(counts.dead, 1, "it is still there");
    assert!(counts.events < 12, "and others are gone: {counts:?}");
    let since = |units: u64| {
        let from = Some(house.clock.now().minus(Span::from_secs(units * UNIT)));
        let events = Selection { from, ..Selection::default() };
        NewReplay { events, status: ReplayStatus::All, ..replay(a, 100) }
    };
    let refused = engine.create_replay(TENANT, since(10)).await.expect_err("it is gone");
    let kept = house.clock.now().minus(Span::from_secs(7 * UNIT));
    assert!(matches!(refused, Error::HistoryNotKept { from } if from == kept), "{refused:?}");
    let refused = engine.count_replay(TENANT, since(10)).await.expect_err("nor is it counted");
    assert!(matches!(refused, Error::HistoryNotKept { .. }), "{refused:?}");
    engine.create_replay(TENANT, since(6)).await.expect("that is kept");
    // Of a tenant that is younger than the retention, nothing can be gone: it may begin with everything.
    let young = engine.create_tenant("young".to_owned()).await.expect("a tenant").id;
    history(&engine, young, 3).await;
    let start =
        Start { from: Beginning::Time(Timestamp::from_millis(0)), created_by: "tests".to_owned() };
    let new = NewSubscription {
        destination: "https://first/".into(),
        start: Some(start),
        ..NewSubscription::default()
    };
    engine.create_subscription(young, new).await.expect("a subscription");
    rest(5).await;
    assert_eq!(house.receivers.of("https://first/").len(), 3);
}

/// What was removed stays removed, whatever the retention is since.
#[tokio::test(start_paused = true)]
async fn a_replay_begins_with_what_is_left_after_the_retention_was_raised() {
    let house = House::new();
    let units = |number: u64| Span::from_secs(number * UNIT);
    let short = Options { event_retention: units(3), ..Options::default() };
    let engine = house.engine_with(1, short).await;
    topic(&engine).await;
    let a = subscribe(&engine, "https://a/", json!({})).await.subscription.id;
    for n in 0..8 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        rest(UNIT).await;
    }
    assert!(house.counts().await.events < 6, "some are gone: {:?}", house.counts().await);
    engine.stop().await;
    let long = Options { event_retention: units(100), ..Options::default() };
    let engine = house.engine_with(2, long).await;
    let before = house.store.pruned_before().await.expect("an answer").expect("something went");
    let from = |from| NewReplay {
        events: Selection { from: Some(from), ..Selection::default() },
        status: ReplayStatus::All,
        ..replay(a, 100)
    };
    let gone = from(before.minus(Span::from_millis(1)));
    let refused = engine.create_replay(TENANT, gone).await.expect_err("it is gone");
    assert!(matches!(refused, Error::HistoryNotKept { from } if from == before), "{refused:?}");
    let kept = engine.create_replay(TENANT, from(before)).await.expect("that is kept");
    rest(5).await;
    assert!(job(&house, TENANT, kept.id).await.seen > 0, "and there is something of it");
}

/// The store goes through all deliveries of an event, in a transaction that others wait for.
#[tokio::test(start_paused = true)]
async fn a_bite_is_the_smaller_the_more_deliveries_its_events_have() {
    const EVENTS: u64 = 30;
    let (house, engine) = House::open().await;
    for n in 0..200 {
        let destination = format!("https://{n}/").as_str().into();
        let new = NewSubscription { destination, paused: true, ..NewSubscription::default() };
        engine.create_subscription(TENANT, new).await.expect("a subscription");
    }
    for n in 0..EVENTS {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(5).await;
    let late = subscribe(&engine, "https://late/", json!({})).await.subscription.id;
    let bites = note_bites(&house, Duration::ZERO);
    let begun = engine.create_replay(TENANT, replay(late, 1_000)).await.expect("begins");
    rest(5).await;
    let ended = job(&house, TENANT, begun.id).await;
    assert_eq!((ended.state, ended.done, ended.seen), (JobState::Done, EVENTS, EVENTS));
    let sizes: Vec<u64> = bites.lock().iter().map(|(_, _, seen)| *seen).collect();
    assert_eq!(sizes, [25, 5], "5,000 deliveries in a bite");
}

/// Filters that are costly to match share the tenant's time with its publishes, and nobody else waits.
#[tokio::test(start_paused = true)]
async fn costly_filters_of_a_job_wait_for_their_tenants_turn_and_no_other_job_does() {
    let house = House::new();
    let quotas = Quotas {
        match_cost_per_event: 16 << 20,
        match_cost_per_second: 128 << 10,
        ..Quotas::default()
    };
    let engine = house.engine_with(1, Options { quotas, ..Options::default() }).await;
    let small = engine.create_tenant("small".to_owned()).await.expect("a tenant").id;
    topic(&engine).await;
    let large = json!({"text": "ab".repeat(60_000)}).to_string();
    for _ in 0..4 {
        engine.publish(TENANT, publish(&large, None)).await.expect("accepted");
    }
    rest(1).await;
    let test = |n: usize| {
        let value = if n == 11 { "abab".to_owned() } else { format!("abab{n}") };
        json!({"test": {"path": "/text", "op": "contains", "value": value}})
    };
    let tests: Vec<Value> = (0..12).map(test).collect();
    let filter = json!({"any_of": [{"payload": {"any": tests}}]});
    let new = NewSubscription {
        destination: "https://costly/".into(),
        filter: Some(serde_json::from_value(filter).expect("a filter")),
        ..NewSubscription::default()
    };
    let costly = engine.create_subscription(TENANT, new).await.expect("one").0.subscription.id;
    let modest = history(&engine, small, 50).await;
    refuse_bites(&house);
    let slow = engine.create_replay(TENANT, replay(costly, 100)).await.expect("begins").id;
    let quick = engine.create_replay(small, replay(modest, 100)).await.expect("begins").id;
    note_bites(&house, Duration::ZERO);
    rest(3).await;
    let done = job(&house, small, quick).await;
    assert_eq!((done.state, done.done), (JobState::Done, 50), "nobody else waits");
    let under_way = job(&house, TENANT, slow).await;
    assert_eq!(under_way.state, JobState::Running, "it has used its share: {under_way:?}");
    assert!(under_way.seen <= 2, "one at a time: {under_way:?}");
    rest(300).await;
    let done = job(&house, TENANT, slow).await;
    assert_eq!((done.state, done.done, done.seen), (JobState::Done, 4, 4));
    // A count waits for the same turn, and not for ever.
    let all = NewReplay { status: ReplayStatus::All, ..replay(costly, 100) };
    let before = Instant::now();
    let counted = engine.count_replay(TENANT, all).await.expect("counts");
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
    assert!(!counted.complete && counted.seen < 4, "{counted:?}");
}

/// So many events in a tenant of its own, straight into the store.
async fn long_history(house: &House, engine: &Engine, events: usize) -> TenantId {
    let tenant = engine.create_tenant(format!("long{events}")).await.expect("a tenant").id;
    let name = TopicName::new("orders").expect("a name");
    let made = engine.put_topic(tenant, name, String::new(), vec![], Labels::default()).await;
    made.expect("a topic");
    let delta = house.store.catalog_since(CatalogVersion(0)).await.expect("a catalog");
    let entry = delta.tenants.iter().find(|entry| entry.tenant.id == tenant).expect("there");
    let (version, now) = (entry.version, house.clock.now());
    for chunk in (0..events).collect::<Vec<_>>().chunks(1_000) {
        let new = chunk.iter().map(|n| {
            let id = EventId::new(now, *n as u128 + 1);
            let attributes = BTreeMap::from([("number".to_owned(), n.to_string())]);
            let event = Event { id, attributes, accepted_at: now, ..builders::event(tenant) };
            let event = Arc::new(event);
            NewEvent { event, idempotency: None, catalog: version, deliveries: vec![] }
        });
        house.store.accept(new.collect()).await.expect("accepted");
    }
    rest(1).await;
    tenant
}

fn in_vain() -> Selection {
    let attributes = BTreeMap::from([("no".to_owned(), "such".to_owned())]);
    Selection { attributes, ..Selection::default() }
}

#[tokio::test(start_paused = true)]
async fn a_count_that_finds_nothing_looks_at_a_bounded_part_of_the_history() {
    let house = House::new();
    let engine = house.engine(1).await;
    for (events, complete) in [(20_000, true), (105_000, false)] {
        let tenant = long_history(&house, &engine, events).await;
        let new =
            NewSubscription { destination: "https://a/".into(), ..NewSubscription::default() };
        let a = engine.create_subscription(tenant, new).await.expect("one").0.subscription.id;
        let events = in_vain();
        let counted = engine.count_replay(tenant, NewReplay { events, ..replay(a, 10) }).await;
        let counted = counted.expect("counts");
        assert_eq!((counted.count, counted.seen), (0, 0));
        assert_eq!(counted.complete, complete);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_job_looks_at_in_vain_counts_against_its_pace() {
    let house = House::new();
    let engine = house.engine(1).await;
    let tenant = long_history(&house, &engine, 30_000).await;
    let new = NewSubscription { destination: "https://a/".into(), ..NewSubscription::default() };
    let a = engine.create_subscription(tenant, new).await.expect("one").0.subscription.id;
    let events = in_vain();
    let begun = engine.create_replay(tenant, NewReplay { events, ..replay(a, 10) }).await;
    let id = begun.expect("begins").id;
    // 5,000 with the request, and 5,000 a second.
    rest(3).await;
    assert_eq!(job(&house, tenant, id).await.state, JobState::Running);
    rest(10).await;
    assert_eq!(job(&house, tenant, id).await.state, JobState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_slow_job_makes_no_commit_for_each_event_that_it_passes_over() {
    let (house, engine) = House::open().await;
    for n in 0..900 {
        let kind = if n % 300 == 299 { "rare" } else { "common" };
        engine.publish(TENANT, of_type(kind)).await.expect("accepted");
    }
    rest(1).await;
    let filter = json!({"any_of": [{"types": ["rare"]}]});
    let new = NewSubscription {
        destination: "https://late/".into(),
        filter: Some(serde_json::from_value(filter).expect("a filter")),
        ..NewSubscription::default()
    };
    let late = engine.create_subscription(TENANT, new).await.expect("one").0.subscription.id;
    let bites = note_bites(&house, Duration::ZERO);
    let begun = engine.create_replay(TENANT, replay(late, 1)).await.expect("begins");
    rest(20).await;
    let ended = job(&house, TENANT, begun.id).await;
    assert_eq!((ended.state, ended.done, ended.seen), (JobState::Done, 3, 900));
    let noted = bites.lock().clone();
    assert!(noted.len() <= 12, "{} commits", noted.len());
    // And no more than one in a second.
    let of = house.receivers.of("https://late/");
    let gaps = of.windows(2).map(|pair| pair[1].at.since(pair[0].at));
    assert!(
        gaps.clone().all(|gap| gap >= Span::from_millis(900)),
        "{:?}",
        gaps.collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_bite_waits_for_a_full_disk_and_an_error_after_the_job_is_written_is_none() {
    let house = House::new();
    let engine = house.engine(1).await;
    let late = history(&engine, TENANT, 30).await;
    engine.admission().set_disk_full(true);
    let begun = engine.create_replay(TENANT, replay(late, 100)).await.expect("begins");
    assert_eq!((begun.state, begun.done), (JobState::Running, 0));
    engine.admission().set_disk_full(false);
    rest(3).await;
    assert_eq!(job(&house, TENANT, begun.id).await.state, JobState::Done);
    refuse_bites(&house);
    let event = house.store.all_deliveries()[0].event;
    let begun = engine.deliver_event(TENANT, event, late, "tests".to_owned()).await;
    let begun = begun.expect("it is written, and goes on");
    assert_eq!(begun.state, JobState::Running);
    note_bites(&house, Duration::ZERO);
    rest(3).await;
    assert_eq!(job(&house, TENANT, begun.id).await.state, JobState::Done);
}

#[tokio::test(start_paused = true)]
async fn many_deliveries_of_an_expunged_event_are_cancelled_with_one_wait() {
    let house = House::new();
    let engine = house.engine(1).await;
    let _second = house.engine(2).await;
    rest(30).await;
    topic(&engine).await;
    for n in 0..100 {
        let view = subscribe(&engine, &format!("https://{n}/"), json!({})).await;
        engine.pause_subscription(TENANT, view.subscription.id).await.expect("paused");
    }
    let event = engine.publish(TENANT, publish("1", None)).await.expect("accepted").id;
    let before = Instant::now();
    let how = Expunge { cancel: true, responses: false };
    let gone = engine.expunge_event(TENANT, event, how).await.expect("expunged");
    assert!(gone.expunged_at.is_some());
    let took = before.elapsed();
    assert!(took < Duration::from_secs(2), "one wait, not a hundred: {took:?}");
    let all = house.store.all_deliveries();
    assert_eq!(all.len(), 100);
    let cancelled = |state: &DeliveryState| matches!(state, DeliveryState::Cancelled(_));
    assert!(all.iter().all(|delivery| cancelled(&delivery.state)));
}
