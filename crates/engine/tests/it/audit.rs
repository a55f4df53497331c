//! The audit log: in whose name things are changed, what leaves a line, and what leaves none.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    ActorKind, AuditAction, AuditEntry, Filter, Home, Scope, Span, SubscriptionId, TenantId,
};
use posthorn_engine::{Acting, Engine, Expunge, NewSubscription, Options, SubscriptionChange};
use posthorn_store::{AuditFilter, DeliveryFilter, EventFilter, Listing, StateKind, Store};
use serde_json::{Value, json};

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

/// All lines, oldest first, but those of what the engine needs for itself.
async fn lines(house: &House) -> Vec<AuditEntry> {
    let page = house.store.audit(AuditFilter::default(), Listing::newest(1_000)).await;
    let mut lines = page.expect("a list").items;
    lines.reverse();
    lines.retain(|line| line.object.id != TenantId::SYSTEM.to_string());
    lines
}

fn actions(lines: &[AuditEntry]) -> Vec<&'static str> {
    lines.iter().map(|line| line.action.as_str()).collect()
}

async fn key(engine: &Engine, tenant: Option<TenantId>, scopes: &[Scope]) -> Acting {
    let made = engine.create_key(tenant, scopes.to_vec(), "ci".to_owned(), None, None).await;
    let principal = engine.authenticate(&made.expect("a key").text).expect("it opens");
    Acting::principal(&principal, "api", "192.0.2.7".parse().ok())
}

#[tokio::test(start_paused = true)]
async fn changes_are_made_in_the_name_of_whoever_asked() {
    let (house, engine) = House::open().await;
    assert_eq!(actions(&lines(&house).await), ["topic.created"]);
    let by_key = engine.acting(key(&engine, Some(TENANT), &[Scope::Manage]).await);
    let client: Arc<str> = "open-zaak".into();
    let by_client = engine.acting(Acting::client(TENANT, client, "notificaties", None));
    let home = Home::Operator;
    let by_session = engine.acting(Acting::session("ses_1", "jo", home, "console", None));
    let id = subscribe(&by_key, "https://a/", json!({})).await.subscription.id;
    by_client.pause_subscription(TENANT, id).await.expect("paused");
    by_session.resume_subscription(TENANT, id).await.expect("resumed");
    engine.acting(Acting::CONFIG).delete_subscription(TENANT, id).await.expect("deleted");
    let all = lines(&house).await;
    let told = &all[2..];
    assert_eq!(
        actions(told),
        [
            "subscription.created",
            "subscription.paused",
            "subscription.resumed",
            "subscription.deleted"
        ]
    );
    for line in told {
        assert_eq!((line.tenant, line.object.id.as_str()), (Some(TENANT), id.to_string().as_str()));
        assert_eq!(line.realm.as_ref().map(ToString::to_string).as_deref(), Some("default"));
    }
    let [made, paused, resumed, gone] = told else { panic!("{told:?}") };
    assert_eq!((made.actor.kind, made.actor.name.as_deref()), (ActorKind::Key, Some("ci")));
    assert_eq!(made.actor.id.as_deref(), Some(all[1].object.id.as_str()), "the key that was made");
    assert_eq!(made.actor.home, Home::Tenant(TENANT));
    assert_eq!(made.origin.address, "192.0.2.7".parse().ok());
    assert_eq!(
        (paused.actor.kind, paused.actor.id.as_deref()),
        (ActorKind::Client, Some("open-zaak"))
    );
    assert_eq!(paused.origin.surface, "notificaties");
    assert_eq!(
        (resumed.actor.kind, resumed.actor.name.as_deref()),
        (ActorKind::Session, Some("jo"))
    );
    assert_eq!((gone.actor.kind, gone.origin.surface.as_str()), (ActorKind::Server, "config"));
}

/// The way of an event is no change, however often it is tried.
#[tokio::test(start_paused = true)]
async fn the_way_of_an_event_leaves_no_line() {
    let (house, engine) = House::open().await;
    let overrides = json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "max_attempts": 3}});
    subscribe(&engine, "https://dead/", overrides).await;
    house.receivers.script("https://dead/", |_, _| (Duration::from_millis(5), answered(500)));
    subscribe(&engine, "https://a/", json!({})).await;
    let before = lines(&house).await;
    let event = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    rest(30).await;
    assert_eq!(house.counts().await.dead, 1);
    engine.republish(TENANT, event).await.expect("accepted");
    rest(30).await;
    assert_eq!(lines(&house).await, before);
    // Whoever asks twice for the same gets it once.
    let name = posthorn_domain::SubscriptionName::new("kept").expect("a name");
    let new = NewSubscription {
        name: Some(name),
        destination: "https://b/".into(),
        ..NewSubscription::default()
    };
    for done in [true, false, false] {
        let ensured = engine.ensure_subscription(TENANT, new.clone()).await.expect("ensured");
        assert_eq!(ensured.1, done);
    }
    assert_eq!(lines(&house).await.len(), before.len() + 1);
}

/// What Posthorn does by itself has its line, in its own name.
#[tokio::test(start_paused = true)]
async fn what_a_policy_does_is_the_servers_own_doing() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://gone/", |_, _| (Duration::from_millis(5), answered(410)));
    let by_key = engine.acting(key(&engine, Some(TENANT), &[Scope::Manage]).await);
    let id = subscribe(&by_key, "https://gone/", json!({})).await.subscription.id;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(10).await;
    let all = lines(&house).await;
    let disabled = all.last().expect("a line");
    assert_eq!(disabled.action, AuditAction::SubscriptionDisabled);
    assert_eq!(disabled.object.id, id.to_string());
    assert_eq!(
        (disabled.actor.kind, disabled.origin.surface.as_str()),
        (ActorKind::Server, "server")
    );
    assert!(disabled.detail.contains_key("reason"), "{disabled:?}");
}

#[tokio::test(start_paused = true)]
async fn one_line_for_a_job_and_one_for_each_thing_that_is_changed_by_itself() {
    let (house, engine) = House::open().await;
    let id = subscribe(&engine, "https://a/", json!({})).await.subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("paused");
    let event = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    let before = lines(&house).await.len();
    let how = Expunge { responses: true, cancel: true };
    engine.expunge_event(TENANT, event, how).await.expect("expunged");
    // Again: it is so already.
    engine.expunge_event(TENANT, event, how).await.expect("expunged");
    let filter = posthorn_domain::RedriveFilter { subscription: Some(id), ..Default::default() };
    engine.create_redrive(TENANT, filter, 10).await.expect("a redrive");
    let description = Some("mine".to_owned());
    let change = SubscriptionChange { description, ..SubscriptionChange::default() };
    engine.update_subscription(TENANT, id, change).await.expect("changed");
    let all = lines(&house).await;
    let told = &all[before..];
    assert_eq!(
        actions(told),
        ["delivery.cancelled", "event.expunged", "redrive.created", "subscription.updated"]
    );
    assert_eq!(told[2].detail["subscription"], id.to_string());
    assert_eq!(told[3].detail["fields"], json!(["description"]));
}

async fn listen(engine: &Engine, tenant: TenantId, url: &str) -> SubscriptionId {
    let filter =
        json!({"any_of": [{"topics": ["posthorn.operational"], "types": ["audit.recorded"]}]});
    let filter: Filter = serde_json::from_value(filter).expect("a filter");
    let new = NewSubscription {
        destination: url.into(),
        filter: Some(filter),
        ..NewSubscription::default()
    };
    let made = engine.create_subscription(tenant, new).await.expect("a subscription");
    made.0.subscription.id
}

/// A line is told once, and being told leads to no further one, even when whoever hears it is disabled for it.
#[tokio::test(start_paused = true)]
async fn telling_of_a_line_causes_no_more_lines_to_be_told() {
    let (house, engine) = House::open().await;
    topic(&engine).await;
    let stored = async |tenant| {
        let page = house.store.events(tenant, EventFilter::default(), Listing::newest(100)).await;
        page.expect("a list").items.len()
    };
    assert_eq!((stored(TENANT).await, stored(TenantId::SYSTEM).await), (0, 0), "nobody listens");
    house.receivers.script("https://gone/", |_, _| (Duration::from_millis(5), answered(410)));
    listen(&engine, TenantId::SYSTEM, "https://operator/").await;
    listen(&engine, TENANT, "https://gone/").await;
    topic(&engine).await;
    rest(30).await;
    let told: Vec<Value> = house
        .receivers
        .bodies("https://operator/")
        .iter()
        .map(|body| serde_json::from_str(body).expect("JSON"))
        .collect();
    let words: Vec<_> =
        told.iter().map(|told| told["action"].as_str().unwrap_or_default()).collect();
    assert_eq!(words, ["subscription.created", "topic.updated"]);
    let all = lines(&house).await;
    assert_eq!(
        all.last().map(|line| line.action),
        Some(AuditAction::SubscriptionDisabled),
        "it has its line"
    );
    assert_eq!(stored(TENANT).await, 1);
}

/// Else whoever clears away what waits for an operational subscription would make one more with each.
#[tokio::test(start_paused = true)]
async fn what_is_done_to_deliveries_of_operational_events_has_its_line_and_is_not_told() {
    let (house, engine) = House::open().await;
    let ear = listen(&engine, TENANT, "https://ear/").await;
    engine.pause_subscription(TENANT, ear).await.expect("paused");
    topic(&engine).await;
    let pending = async || {
        let filter = DeliveryFilter { subscription: Some(ear), ..DeliveryFilter::default() };
        let filter = DeliveryFilter { state: Some(StateKind::Pending), ..filter };
        let page = house.store.deliveries(TENANT, filter, Listing::newest(10)).await;
        page.expect("a list").items
    };
    let waiting = pending().await;
    assert!(!waiting.is_empty());
    for delivery in &waiting {
        engine.cancel_delivery(TENANT, delivery.id).await.expect("cancelled");
    }
    assert!(pending().await.is_empty(), "nothing new came of it");
    let all = lines(&house).await;
    let cancelled = all.iter().filter(|line| line.action == AuditAction::DeliveryCancelled);
    assert_eq!(cancelled.count(), waiting.len(), "each has its line");
}

/// Lines go when they are old enough.
#[tokio::test(start_paused = true)]
async fn old_lines_are_removed() {
    let house = House::new();
    let options = Options { audit_retention: Span::from_secs(3_600), ..Options::default() };
    let engine = house.engine_with(1, options).await;
    topic(&engine).await;
    rest(1_800).await;
    subscribe(&engine, "https://a/", json!({})).await;
    assert_eq!(actions(&lines(&house).await), ["topic.created", "subscription.created"]);
    rest(1_830).await;
    assert_eq!(actions(&lines(&house).await), ["subscription.created"]);
    rest(1_830).await;
    assert_eq!(actions(&lines(&house).await), [""; 0]);
}
