//! Tenants that are deleted, and how many attempts a second a tenant may begin.

use std::time::Duration;

use posthorn_domain::{
    JobState, Labels, Metadata, RealmName, TenantChange, TenantId, TopicName, WaitReason,
};
use posthorn_engine::{Bound, Engine, Error, NewSubscription, NewTenant};
use posthorn_store::{Counts, DeliveryFilter, Listing, Store};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe};

/// A tenant with the topic of the tests and a subscription.
async fn tenant(engine: &Engine, name: &str, url: &str) -> TenantId {
    let tenant = engine.create_tenant(name.to_owned()).await.expect("a tenant").id;
    let topic = TopicName::new("orders").expect("a name");
    engine
        .put_topic(tenant, topic, String::new(), vec![], Labels::default())
        .await
        .expect("a topic");
    let new = NewSubscription { destination: url.into(), ..NewSubscription::default() };
    engine.create_subscription(tenant, new).await.expect("a subscription");
    tenant
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_on_any_node_once_a_tenant_is_deleted() {
    let house = House::new();
    let (one, two) = (house.engine(1).await, house.engine(2).await);
    rest(10).await;
    let acme = tenant(&one, "acme", "https://acme/").await;
    house.receivers.script("https://acme/", |_, _| (Duration::from_millis(50), answered(503)));
    let key =
        one.create_key(Some(acme), vec![posthorn_domain::Scope::Read], String::new(), None, None);
    let key = key.await.expect("a key").text;
    rest(2).await;
    for node in [&one, &two] {
        for number in 0..20 {
            node.publish(acme, publish(&number.to_string(), None)).await.expect("accepted");
        }
        assert!(node.authenticate(&key).is_some());
    }
    rest(20).await;
    assert!(house.receivers.of("https://acme/").len() > 40, "they are tried again and again");
    let job = two.delete_tenant(acme, "me".to_owned()).await.expect("begins");
    let before = house.receivers.of("https://acme/").len();
    for node in [&one, &two] {
        let refused = node.publish(acme, publish("1", None)).await;
        assert!(matches!(refused, Err(Error::TenantDeleted)), "{refused:?}");
        assert!(node.authenticate(&key).is_none(), "its keys open nothing");
        let again = node.delete_tenant(acme, "me".to_owned()).await;
        assert!(matches!(again, Err(Error::TenantDeleted)), "{again:?}");
    }
    rest(120).await;
    assert_eq!(house.receivers.of("https://acme/").len(), before, "and nothing is tried any more");
    let done = one.deletion_of(acme).await.expect("it is kept");
    assert_eq!((done.id, done.state), (job.id, JobState::Done));
    assert_eq!(
        done.done,
        40 + 40 + 3 + 1 + 4 + 6,
        "events, deliveries, entries, one that was deleted, lines of the audit log, and figures of the past"
    );
    assert_eq!(house.store.counts(Some(acme)).await.expect("counts"), Counts::default());
    assert!(one.catalog().tenant_named("acme").is_none(), "the name is free");
    assert!(one.create_tenant("acme".to_owned()).await.expect("a tenant").id != acme);
}

/// Killed in the middle, the deletion goes on with whoever is on duty next.
#[tokio::test(start_paused = true)]
async fn a_deletion_survives_its_node() {
    let house = House::new();
    let one = house.engine(1).await;
    let acme = tenant(&one, "acme", "https://acme/").await;
    for _ in 0..30 {
        let batch = (0..100).map(|number| publish(&number.to_string(), None)).collect();
        one.publish_batch(acme, batch).await.expect("accepted");
    }
    let job = one.delete_tenant(acme, "me".to_owned()).await.expect("begins");
    assert_eq!(job.state, JobState::Running, "there is more than fits one bite");
    one.kill();
    let two = house.engine(2).await;
    let refused = two.publish(acme, publish("1", None)).await;
    assert!(matches!(refused, Err(Error::TenantDeleted)), "{refused:?}");
    rest(60).await;
    assert_eq!(two.deletion_of(acme).await.expect("it is kept").state, JobState::Done);
    assert_eq!(house.counts().await, Counts::default());
    two.kill();
    // One that starts afterwards knows of it as well.
    let three = house.engine(3).await;
    assert!(matches!(three.catalog().tenant(acme), Err(Error::TenantDeleted)));
}

#[tokio::test(start_paused = true)]
async fn the_default_tenant_and_those_that_are_not_there_are_not_deleted() {
    let (_house, engine) = House::open().await;
    let refused = engine.delete_tenant(TENANT, String::new()).await;
    assert!(matches!(refused, Err(Error::DefaultTenant)), "{refused:?}");
    let nobody = TenantId::new(engine.now(), 7);
    let refused = engine.delete_tenant(nobody, String::new()).await;
    assert!(matches!(refused, Err(Error::NotFound("tenant"))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_keeps_to_its_pace_and_its_subscriptions_take_turns() {
    let (house, engine) = House::open().await;
    let urls = ["https://a/", "https://b/", "https://c/"];
    for url in urls {
        subscribe(&engine, url, json!({})).await;
    }
    let other = tenant(&engine, "other", "https://other/").await;
    let pace = TenantChange { deliveries_per_second: Some(Some(10)), ..TenantChange::default() };
    engine.change_tenant(TENANT, pace).await.expect("changed");
    let batch = || (0..40).map(|number| publish(&number.to_string(), None)).collect::<Vec<_>>();
    engine.publish_batch(TENANT, batch()).await.expect("accepted");
    let theirs = engine.publish_batch(other, batch()).await.expect("accepted");
    assert_eq!(theirs.len(), 40);
    rest(3).await;
    assert_eq!(house.receivers.of("https://other/").len(), 40, "others have nothing to do with it");
    let counts = urls.map(|url| house.receivers.of(url).len());
    let sum: usize = counts.iter().sum();
    assert!((30..=32).contains(&sum), "ten a second: {counts:?}");
    assert!(counts.iter().all(|count| (9..=12).contains(count)), "in turn: {counts:?}");
    // What waits says so.
    let page = house.store.deliveries(TENANT, DeliveryFilter::default(), Listing::newest(1)).await;
    let waits = page.expect("a page").items[0].clone();
    let timeline = engine.timeline(TENANT, waits.id).await.expect("a timeline");
    let shown = format!("{timeline:?}");
    assert!(shown.contains(&format!("{:?}", WaitReason::TenantRate)), "{shown}");
    rest(12).await;
    let counts = urls.map(|url| house.receivers.of(url).len());
    assert_eq!(counts, [40, 40, 40], "and nothing is lost");
}

#[tokio::test(start_paused = true)]
async fn the_pace_of_a_realm_counts_where_a_tenant_has_none() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let mut contents = posthorn_engine::RealmContents::default();
    contents.defaults.deliveries_per_second = Some(5);
    engine.put_realm(RealmName::default(), contents.clone()).await.expect("put");
    for number in 0..20 {
        engine.publish(TENANT, publish(&number.to_string(), None)).await.expect("accepted");
    }
    rest(2).await;
    let count = house.receivers.of("https://a/").len();
    assert!((10..=11).contains(&count), "{count}");
    contents.defaults.deliveries_per_second = None;
    engine.put_realm(RealmName::default(), contents).await.expect("put");
    rest(1).await;
    assert_eq!(house.receivers.of("https://a/").len(), 20, "nobody waits any longer");
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_realm_are_not_an_operators() {
    let (_house, engine) = House::open().await;
    let bound = Bound::Realm(RealmName::default());
    let scopes = vec![posthorn_domain::Scope::Manage];
    let made = engine.create_key(bound.clone(), scopes, String::new(), None, None).await;
    let principal = engine.authenticate(&made.expect("a key").text).expect("it works");
    assert!(!principal.is_operator() && !engine.has_operator_key());
    assert_eq!(principal.realm(), Some(&RealmName::default()));
    let operator = vec![posthorn_domain::Scope::Operator];
    let refused = engine.create_key(bound, operator, String::new(), None, None).await;
    assert!(refused.is_err(), "an operator's key is bound to nothing");
    let new = NewTenant {
        name: "x".to_owned(),
        realm: RealmName::new("nowhere").expect("a name"),
        metadata: Metadata::default(),
        ..NewTenant::default()
    };
    let refused = engine.create_tenant_in(new).await;
    assert!(matches!(refused, Err(Error::NotFound("realm"))), "{refused:?}");
}
