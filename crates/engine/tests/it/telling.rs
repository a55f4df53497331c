//! Operational events: who is told what, and what is never told.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    CertificateKind, Filter, JobState, Labels, RedriveFilter, ReplayStatus, Selection,
    SubscriptionId, TenantId, TopicName,
};
use posthorn_engine::{
    AdmissionOptions, CertificateContents, Engine, Error, NewCertificate, NewReplay,
    NewSubscription, Options, SubscriptionChange, SubscriptionView,
};
use posthorn_store::{CatalogChange, EventFilter, Listing, Store};
use posthorn_testkit::authority::Pair;
use rcgen::date_time_ymd;
use serde_json::{Value, json};

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

const OPERATORS: TenantId = TenantId::SYSTEM;

/// Somebody who wants operational events of these types; of all, when none is named.
async fn listen(
    engine: &Engine,
    tenant: TenantId,
    url: &str,
    types: &[&str],
    overrides: Value,
) -> Arc<SubscriptionView> {
    let filter = json!({"any_of": [{"topics": ["posthorn.operational"], "types": types}]});
    let filter: Filter = serde_json::from_value(filter).expect("a filter");
    let new = NewSubscription {
        destination: url.into(),
        filter: Some(filter),
        overrides,
        ..NewSubscription::default()
    };
    engine.create_subscription(tenant, new).await.expect("a subscription").0
}

/// What a URL was told, without lines of the audit log: each change has one.
fn told(house: &House, url: &str) -> Vec<Value> {
    let parse = |body: &String| serde_json::from_str::<Value>(body).expect("JSON");
    let all = house.receivers.bodies(url);
    all.iter().map(parse).filter(|told| told["type"] != "audit.recorded").collect()
}

fn types(house: &House, url: &str) -> Vec<String> {
    let word = |told: &Value| told["type"].as_str().expect("a type").to_owned();
    told(house, url).iter().map(word).collect()
}

/// How many operational events a tenant has, without those of the audit log.
async fn stored(house: &House, tenant: TenantId) -> usize {
    let filter = EventFilter { topics: vec![TopicName::operational()], ..EventFilter::default() };
    let page = house.store.events(tenant, filter, Listing::newest(100)).await.expect("a list");
    page.items.iter().filter(|event| event.event_type.as_str() != "audit.recorded").count()
}

fn retries(max: u32) -> Value {
    json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none",
        "max_attempts": max}})
}

fn fails_first(house: &House, url: &str, times: usize) {
    house.receivers.script(url, move |nth, _| {
        (Duration::from_millis(5), answered(if nth < times { 500 } else { 200 }))
    });
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_fail_recover_and_die_are_told_to_both() {
    let (house, engine) = House::open().await;
    listen(&engine, TENANT, "https://ear/", &["delivery.*"], json!({})).await;
    listen(&engine, OPERATORS, "https://operator/", &["delivery.*"], json!({})).await;
    fails_first(&house, "https://a/", 4);
    let id = subscribe(&engine, "https://a/", retries(9)).await.subscription.id;
    let event = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    rest(30).await;
    assert_eq!(types(&house, "https://ear/"), ["delivery.failing", "delivery.recovered"]);
    assert_eq!(told(&house, "https://ear/"), told(&house, "https://operator/"));
    let failing = &told(&house, "https://ear/")[0];
    assert_eq!(failing["subscription"], id.to_string());
    assert_eq!(failing["event"], event.to_string());
    assert_eq!((&failing["attempts"], &failing["status"]), (&json!(4), &json!(500)));
    assert_eq!(
        (&failing["topic"], &failing["event_type"]),
        (&json!("orders"), &json!("order.created"))
    );
    assert_eq!(failing["tenant"], TENANT.to_string());
    assert!(failing["next_attempt_at"].is_string());

    // One that dies sooner was never failing; and three failures are nothing to tell.
    fails_first(&house, "https://dead/", 99);
    subscribe(&engine, "https://dead/", retries(3)).await;
    fails_first(&house, "https://b/", 3);
    subscribe(&engine, "https://b/", retries(9)).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(30).await;
    assert_eq!(types(&house, "https://ear/")[2..], ["delivery.dead"]);
    let dead = &told(&house, "https://ear/")[2];
    assert_eq!((&dead["reason"], &dead["attempts"]), (&json!("exhausted"), &json!(3)));
    assert_eq!((stored(&house, TENANT).await, stored(&house, OPERATORS).await), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn changes_of_subscriptions_are_told_on_the_catalog_before_them() {
    let (house, engine) = House::open().await;
    let ear = listen(&engine, TENANT, "https://ear/", &[], json!({})).await;
    rest(2).await;
    assert!(house.receivers.of("https://ear/").is_empty(), "it was not there yet when it was made");
    let url = "https://a.example/hook?token=s3cret";
    let id = subscribe(&engine, url, json!({})).await.subscription.id;
    let description = Some("mine".to_owned());
    let change = SubscriptionChange { description, ..SubscriptionChange::default() };
    engine.update_subscription(TENANT, id, change).await.expect("changed");
    engine.pause_subscription(TENANT, id).await.expect("paused");
    engine.delete_subscription(TENANT, id).await.expect("deleted");
    rest(2).await;
    let all = told(&house, "https://ear/");
    let words: Vec<_> = all.iter().map(|told| told["type"].as_str().unwrap_or_default()).collect();
    let updated = "subscription.updated";
    assert_eq!(words, ["subscription.created", updated, updated, "subscription.deleted"]);
    assert!(all.iter().all(|told| told["subscription"] == id.to_string()));
    assert!(all.iter().all(|told| told["origin"] == "https://a.example"), "{all:?}");
    assert!(!format!("{all:?}").contains("s3cret"));
    assert_eq!((&all[1]["description"], &all[2]["status"]), (&json!("mine"), &json!("paused")));
    // What is gone is not told that it is gone.
    engine.delete_subscription(TENANT, ear.subscription.id).await.expect("deleted");
    rest(2).await;
    // Each change has its line in the audit log, which is told as well.
    assert_eq!(house.receivers.of("https://ear/").len(), 4 + 4);
    assert_eq!(stored(&house, TENANT).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_is_told_at_half_the_time_when_it_is_disabled_and_when_it_is_back() {
    let (house, engine) = House::open().await;
    let kinds = ["subscription.failing", "subscription.disabled", "subscription.recovered"];
    listen(&engine, TENANT, "https://ear/", &kinds, json!({})).await;
    fails_first(&house, "https://a/", 1_000);
    let mut policy = retries(200);
    policy["failing"] = json!({"disable_after": "100s"});
    let id = subscribe(&engine, "https://a/", policy).await.subscription.id;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(45).await;
    assert!(house.receivers.of("https://ear/").is_empty());
    rest(30).await;
    assert_eq!(types(&house, "https://ear/"), kinds[..1]);
    let failing = &told(&house, "https://ear/")[0];
    assert!(failing["failing_since"].is_string() && failing["disabled_after"].is_string());
    // A success ends it, and is told once.
    fails_first(&house, "https://a/", 0);
    rest(10).await;
    assert_eq!(types(&house, "https://ear/"), [kinds[0], kinds[2]]);

    fails_first(&house, "https://a/", 1_000);
    let change = SubscriptionChange {
        overrides: Some(json!({"failing": {"disable_after": "100s"}, "schedule":
            {"backoff": {"fixed": {"wait": "5s"}}, "jitter": "none", "max_attempts": 10}})),
        ..SubscriptionChange::default()
    };
    engine.update_subscription(TENANT, id, change).await.expect("changed");
    for n in 0..30 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        rest(5).await;
    }
    assert_eq!(types(&house, "https://ear/")[2..], kinds[..2]);
    assert_eq!(told(&house, "https://ear/")[3]["reason"], "failing");
    engine.resume_subscription(TENANT, id).await.expect("resumed");
    rest(1).await;
    assert_eq!(types(&house, "https://ear/")[4..], kinds[2..], "enabled again");
}

#[tokio::test(start_paused = true)]
async fn that_a_streak_was_told_survives_its_owner() {
    let house = House::new();
    let first = house.engine(1).await;
    topic(&first).await;
    let kinds = ["subscription.failing", "subscription.recovered"];
    listen(&first, TENANT, "https://ear/", &kinds, json!({})).await;
    fails_first(&house, "https://a/", 1_000);
    let mut policy = retries(1_000);
    policy["failing"] = json!({"disable_after": "1000s"});
    subscribe(&first, "https://a/", policy).await;
    first.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(520).await;
    assert_eq!(types(&house, "https://ear/"), kinds[..1]);
    first.kill();
    let second = house.engine(2).await;
    rest(120).await;
    assert_eq!(types(&house, "https://ear/"), kinds[..1], "not once more");
    fails_first(&house, "https://a/", 0);
    rest(10).await;
    assert_eq!(types(&house, "https://ear/"), kinds);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn jobs_and_redrives_tell_their_ends_with_all_they_did() {
    let (house, engine) = House::open().await;
    fails_first(&house, "https://a/", 5);
    subscribe(&engine, "https://a/", retries(1)).await;
    for n in 0..5 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(5).await;
    let late = subscribe(&engine, "https://late/", json!({})).await.subscription.id;
    listen(&engine, TENANT, "https://ear/", &["job.finished"], json!({})).await;
    let redrive =
        engine.create_redrive(TENANT, RedriveFilter::default(), 10).await.expect("begins");
    rest(2).await;
    let replay = |per_second| NewReplay {
        subscription: Some(late),
        events: Selection::default(),
        status: ReplayStatus::Missed,
        per_second,
        created_by: "tests".to_owned(),
    };
    let job = engine.create_replay(TENANT, replay(100)).await.expect("begins");
    assert_eq!(job.state, JobState::Done, "a small one is done at once");
    let slow = engine.create_replay(TENANT, replay(1)).await.expect("begins");
    let slow = engine.cancel_job(TENANT, slow.id).await.expect("cancelled");
    let events = house.store.events(TENANT, EventFilter::default(), Listing::newest(1)).await;
    let event = events.expect("a list").items[0].id;
    let once = engine.deliver_event(TENANT, event, late, "tests".to_owned()).await.expect("done");
    assert_eq!((once.state, once.done), (JobState::Done, 1));
    rest(5).await;
    let all = told(&house, "https://ear/");
    let said = |told: &Value| {
        let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| told[name].as_u64().unwrap_or(u64::MAX);
        (word("job"), word("kind"), word("state"), number("seen"), number("done"))
    };
    let all: Vec<_> = all.iter().map(said).collect();
    let expected = |id: String, kind: &str, state: &str, seen, done| {
        (id, kind.to_owned(), state.to_owned(), seen, done)
    };
    let wanted = [
        expected(redrive.id.to_string(), "redrive", "done", 5, 5),
        // What was told of the redrive is an event like any other, and nobody that this one is for wants it.
        expected(job.id.to_string(), "replay", "done", 6, 5),
        expected(slow.id.to_string(), "replay", "cancelled", slow.seen, slow.done),
        expected(once.id.to_string(), "deliver", "done", 1, 1),
    ];
    assert_eq!(all, wanted);
}

/// The tenant's own subscriptions are gone by then, so operators alone are told.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_deletion_is_told_to_operators() {
    let (house, engine) = House::open().await;
    listen(&engine, OPERATORS, "https://operator/", &["job.finished"], json!({})).await;
    let doomed = engine.create_tenant("doomed".to_owned()).await.expect("a tenant").id;
    let name = TopicName::new("orders").expect("a name");
    let put = engine.put_topic(doomed, name, String::new(), vec![], Labels::default());
    put.await.expect("a topic");
    listen(&engine, doomed, "https://ear/", &["job.finished"], json!({})).await;
    for n in 0..3 {
        engine.publish(doomed, publish(&n.to_string(), None)).await.expect("accepted");
    }
    let job = engine.delete_tenant(doomed, "tests".to_owned()).await.expect("begins");
    rest(60).await;
    let all = told(&house, "https://operator/");
    let [end] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&end["job"], &end["kind"]), (&json!(job.id.to_string()), &json!("delete_tenant")));
    assert_eq!((&end["state"], &end["tenant"]), (&json!("done"), &json!(doomed.to_string())));
    let kept = engine.store().job(doomed, job.id).await.expect("answers").expect("it is kept");
    assert_eq!((kept.state, &json!(kept.done)), (JobState::Done, &end["done"]));
    assert!(kept.done >= 4, "{kept:?}");
    assert!(house.receivers.of("https://ear/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_did_not_ask_is_told_nothing_and_nothing_is_stored() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://everything/", json!({})).await;
    fails_first(&house, "https://dead/", 99);
    subscribe(&engine, "https://dead/", retries(5)).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(30).await;
    assert_eq!(house.receivers.of("https://everything/").len(), 1);
    let other = engine.create_tenant("other".to_owned()).await.expect("a tenant").id;
    listen(&engine, other, "https://other/", &[], json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(30).await;
    assert!(house.receivers.of("https://other/").is_empty(), "it is another tenant's affair");
    assert_eq!((stored(&house, TENANT).await, stored(&house, OPERATORS).await), (0, 0));
    assert_eq!(house.counts().await.events, 2);
}

#[tokio::test(start_paused = true)]
async fn operational_events_cause_no_more_of_themselves() {
    let (house, engine) = House::open().await;
    // Ears that never hear anything: they fail, die, and are disabled in the end.
    for (tenant, url) in [(TENANT, "https://deaf/"), (OPERATORS, "https://deaf-operator/")] {
        fails_first(&house, url, 10_000);
        let mut policy = retries(6);
        policy["failing"] = json!({"disable_after": "5s"});
        listen(&engine, tenant, url, &[], policy).await;
    }
    rest(5).await;
    let before = (stored(&house, TENANT).await, stored(&house, OPERATORS).await);
    let id = subscribe(&engine, "https://a/", json!({})).await.subscription.id;
    engine.delete_subscription(TENANT, id).await.expect("deleted");
    rest(600).await;
    let after = (stored(&house, TENANT).await, stored(&house, OPERATORS).await);
    assert_eq!(after, (before.0 + 2, before.1 + 2), "created and deleted, and no more");
    let disabled = engine.catalog().subscriptions(TENANT);
    assert!(disabled.iter().all(|view| !view.subscription.status.is_active()));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_publishes_on_the_topic_or_in_the_tenant() {
    let (_house, engine) = House::open().await;
    let mut reserved = publish("{}", None);
    reserved.topic = TopicName::operational();
    let batch = vec![publish("{}", None), reserved.clone()];
    let answers = engine.publish_batch(TENANT, batch).await.expect("answers");
    assert!(answers[0].is_ok(), "each stands for itself");
    assert!(matches!(answers[1], Err(Error::TopicReserved(_))), "{answers:?}");
    let answers = engine.publish_unchecked(TENANT, vec![reserved]).await.expect("answers");
    assert!(matches!(answers[0], Err(Error::TopicReserved(_))), "{answers:?}");
    let name = TopicName::operational();
    let (none, labels) = (String::new(), Labels::default());
    let put = engine.put_topic(TENANT, name.clone(), none.clone(), vec![], labels.clone()).await;
    assert!(matches!(put, Err(Error::TopicReserved(_))));
    let made = engine.create_topic(TENANT, name.clone(), none, vec![], labels).await;
    assert!(matches!(made, Err(Error::TopicReserved(_))));
    assert!(matches!(engine.delete_topic(TENANT, name).await, Err(Error::TopicReserved(_))));
    assert!(matches!(
        engine.publish(OPERATORS, publish("{}", None)).await,
        Err(Error::TenantReserved)
    ));
    assert!(matches!(engine.create_tenant("system".to_owned()).await, Err(Error::TenantReserved)));
    assert!(matches!(engine.ensure_tenant("system").await, Err(Error::TenantReserved)));
    assert_eq!(engine.catalog().tenant(OPERATORS).expect("it is there").name, "system");
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_name_is_taken_has_the_tenant_under_another() {
    let house = House::new();
    let name = "system".to_owned();
    let at = posthorn_domain::Timestamp::from_millis(5);
    let taken = posthorn_domain::Tenant::new(TenantId::new(at, 5), name, at);
    house.store.change_catalog(CatalogChange::CreateTenant(taken)).await.expect("a tenant");
    let (first, second) = (house.engine(1).await, house.engine(2).await);
    for engine in [&first, &second] {
        let tenant = engine.catalog().tenant(OPERATORS).expect("it is there");
        assert_eq!(tenant.name, "posthorn-system");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_planned_on_an_old_catalog_is_planned_again() {
    let (house, engine) = House::open().await;
    listen(&engine, TENANT, "https://ear/", &["delivery.dead"], json!({})).await;
    subscribe(&engine, "https://a/", retries(1)).await;
    // Another node, which says nothing of it, changes the catalog while the attempt is under way.
    let store = house.store.clone();
    house.receivers.script("https://a/", move |nth, _| {
        let store = store.clone();
        tokio::spawn(async move {
            let topic = posthorn_domain::Topic {
                tenant: TENANT,
                name: TopicName::new(&format!("more-{nth}")).expect("a name"),
                description: String::new(),
                attributes: Vec::new(),
                labels: Labels::default(),
                created_at: posthorn_domain::Timestamp::from_millis(0),
            };
            store.change_catalog(CatalogChange::CreateTopic(topic)).await.expect("changed");
        });
        (Duration::from_millis(50), answered(500))
    });
    for n in 0..3 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        rest(2).await;
    }
    assert_eq!(types(&house, "https://ear/"), ["delivery.dead"; 3]);
    assert_eq!(house.counts().await.dead, 3);
}

#[tokio::test(start_paused = true)]
async fn a_full_quota_a_full_disk_and_a_lost_node_are_told_once() {
    let house = House::new();
    let admission = AdmissionOptions { pending_per_tenant: 10, ..AdmissionOptions::default() };
    let options = || Options { admission: admission.clone(), ..Options::default() };
    let first = house.engine_with(1, options()).await;
    topic(&first).await;
    listen(&first, TENANT, "https://ear/", &["quota.near"], json!({})).await;
    let server = ["quota.near", "disk.near_full", "node.lost"];
    listen(&first, OPERATORS, "https://operator/", &server, json!({})).await;
    let id: SubscriptionId = subscribe(&first, "https://a/", json!({})).await.subscription.id;
    first.pause_subscription(TENANT, id).await.expect("paused");
    for n in 0..8 {
        first.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(60).await;
    assert_eq!(types(&house, "https://ear/"), ["quota.near"]);
    let near = &told(&house, "https://ear/")[0];
    assert_eq!((&near["pending"], &near["limit"]), (&json!(8), &json!(10)));
    first.admission().set_disk_near_full(Some(91));
    rest(60).await;
    assert_eq!(types(&house, "https://operator/"), ["quota.near", "disk.near_full"]);
    assert_eq!(told(&house, "https://operator/")[1]["used_percent"], 91);
    // Whoever takes over finds that it was told.
    let second = house.engine_with(2, options()).await;
    rest(30).await;
    first.kill();
    rest(120).await;
    assert_eq!(types(&house, "https://operator/")[2..], ["node.lost"]);
    let lost = &told(&house, "https://operator/")[2];
    assert_eq!(lost["node"], first.node().to_string());
    // One that says good-bye is not lost.
    let third = house.engine_with(3, options()).await;
    rest(30).await;
    third.stop().await;
    rest(120).await;
    assert_eq!(house.receivers.of("https://operator/").len(), 3);
    assert_eq!(house.receivers.of("https://ear/").len(), 1);
    drop(second);
}

/// Only a node itself knows of its disk.
#[tokio::test(start_paused = true)]
async fn every_node_tells_of_its_own_disk_once() {
    let house = House::new();
    let first = house.engine(1).await;
    listen(&first, OPERATORS, "https://operator/", &["disk.near_full"], json!({})).await;
    let second = house.engine(2).await;
    rest(60).await;
    let nodes = || -> Vec<String> {
        let told = told(&house, "https://operator/");
        told.iter().map(|body| body["node"].as_str().expect("a node").to_owned()).collect()
    };
    second.admission().set_disk_near_full(Some(93));
    rest(60).await;
    assert_eq!(nodes(), [second.node().to_string()]);
    first.admission().set_disk_near_full(Some(91));
    rest(60).await;
    assert_eq!(nodes(), [second.node().to_string(), first.node().to_string()]);
    // It lasts: nothing more is told, whoever has the duty, until it was all right in between.
    first.stop().await;
    rest(2 * 3_600).await;
    assert_eq!(nodes().len(), 2);
    second.admission().set_disk_near_full(None);
    rest(60).await;
    second.admission().set_disk_near_full(Some(95));
    rest(60).await;
    assert_eq!(nodes()[2..], [second.node().to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_ends_soon_is_told_once_and_again_when_its_successor_does() {
    let house = House::new();
    let first = house.engine(1).await;
    topic(&first).await;
    listen(&first, TENANT, "https://ear/", &["certificate.expiring"], json!({})).await;
    listen(&first, OPERATORS, "https://operator/", &["certificate.expiring"], json!({})).await;
    // The clock of the house begins on 14 November 2023.
    let ends = |year, month, day| {
        let end = date_time_ymd(year, month, day);
        Pair::self_signed_with("hooks.example", |params| params.not_after = end)
    };
    let add = async |pair: &Pair| {
        let contents = CertificateContents {
            certificate: pair.certificate.clone(),
            key: Some(pair.key.clone()),
        };
        let new = NewCertificate {
            kind: CertificateKind::Client,
            description: "callbacks".to_owned(),
            owner: String::new(),
            host: String::new(),
            scopes: Vec::new(),
            contents,
        };
        first.create_certificate(TENANT, new).await.expect("registered").certificate.id
    };
    add(&ends(2024, 1, 14)).await;
    let soon = add(&ends(2023, 12, 1)).await;
    let revoked = add(&ends(2023, 12, 2)).await;
    first.revoke_certificate(TENANT, revoked).await.expect("revoked");
    rest(600).await;
    assert_eq!(types(&house, "https://ear/"), ["certificate.expiring"]);
    let told_of = &told(&house, "https://ear/")[0];
    assert_eq!(told_of["certificate"], soon.to_string());
    assert_eq!(told_of["not_after"], "2023-12-01T00:00:00.000Z");
    assert_eq!(told_of["description"], "callbacks");
    assert!(!told_of.to_string().contains("PRIVATE"), "{told_of}");
    assert_eq!(told(&house, "https://ear/"), told(&house, "https://operator/"));

    // Whoever takes over finds that it was told; another certificate under the same id has an end of its own.
    let second = house.engine(2).await;
    rest(30).await;
    first.stop().await;
    rest(600).await;
    assert_eq!(house.receivers.of("https://ear/").len(), 1);
    let next = ends(2023, 12, 5);
    let contents = CertificateContents { certificate: next.certificate, key: Some(next.key) };
    second.rotate_certificate(TENANT, soon, contents).await.expect("rotated");
    rest(60).await;
    assert_eq!(told(&house, "https://ear/")[1]["not_after"], "2023-12-05T00:00:00.000Z");
    assert_eq!(house.receivers.of("https://ear/").len(), 2);
}
