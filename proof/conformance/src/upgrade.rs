//! What an older version left: a store that a fixed script has filled, and what a newer version must find
//! in it.
//!
//! Each durable store keeps dumps of such a store, made before its schema changed. A test opens a copy with
//! the newest version, which migrates it, and hands it to [`check`]. That fills a model with the same script
//! and compares everything that can be read; then both go on working, and are compared again. What was put
//! into the catalog is also compared with the script itself, so that a field that no store keeps is missed.
//!
//! Programs that are older than this script have filled their stores with a smaller one ([`early`]), and
//! [`check_early`] looks at what they left.
//!
//! Ids and times are written down here: the script must do the same in every process, for ever. What a
//! later version adds to the contract goes into a script and a dump of its own.

pub mod early;
mod usable;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    AgentId, ApiKey, Attempt, AuditAction, CatalogVersion, Certificate, CertificateId,
    CertificateKind, ChannelId, Client, ClientName, Clock, Delivery, DeliveryId, Destination,
    Event, EventId, EventType, FailureCode, KeyId, Labels, Lane, LaneKey, NodeId, ProfileName,
    PushTarget, PushUrgency, Redrive, RedriveFilter, RedriveId, Scope, SealedSecret, SecretName,
    Subscription, SubscriptionId, SubscriptionName, SubscriptionStatus, Tenant, TenantId,
    TenantProfile, Timestamp, Topic, TopicName,
};
use posthorn_store::{
    AttemptFilter, AttemptLine, AuditFilter, CatalogChange, CatalogDelta, DeliveryFilter,
    EventFilter, Listing, NewDelivery, NewEvent, RedrivePage, Standing, Store, Streak,
};

use crate::builders::{
    Setting, all_shards, api_key, at, attempt, certificate, dead_block, dead_skip, delivered,
    failed, idempotency, labels, redrive, subscription, topic,
};
use crate::model::ModelStore;

pub use usable::{check_early, check_push};

const ACME: u128 = 1;
const OTHER: u128 = 2;

/// Subscriptions, by what they are there for.
const HOOK: u128 = 11;
const LANES: u128 = 12;
const DISABLED: u128 = 13;
const PUSH: u128 = 14;
const SWEPT: u128 = 15;
const UNSWEPT: u128 = 16;
const FOREIGN: u128 = 17;
const PAUSED: u128 = 18;

fn tenant_id(number: u128) -> TenantId {
    TenantId::new(at(0), number)
}

fn subscription_id(number: u128) -> SubscriptionId {
    SubscriptionId::new(at(0), number)
}

fn delivery_id(number: u128) -> DeliveryId {
    DeliveryId::new(at(0), number)
}

fn tenant(number: u128, name: &str) -> Tenant {
    Tenant::new(tenant_id(number), name.to_owned(), at(1))
}

fn secret(name: &str, sealed: &'static [u8], created: i64, expires: Option<i64>) -> SealedSecret {
    SealedSecret {
        name: SecretName::new(name).expect("a proper name"),
        sealed: Bytes::from_static(sealed),
        created_at: at(created),
        expires_at: expires.map(at),
    }
}

/// One that says something in every field.
fn rich(number: u128, tenant: TenantId) -> Subscription {
    let mut rich = Subscription {
        id: subscription_id(number),
        name: Some(SubscriptionName::new(&format!("name é {number}")).expect("a proper name")),
        description: format!("number {number}, with a \"quote\" and a \\ and\na line"),
        labels: labels(&[("country", "DE"), ("note", "\u{1F4EF}")]),
        destination: Destination::Webhook { url: format!("https://example.test/{number}?a=b") },
        profile: ProfileName::new("patient").expect("a proper name"),
        overrides: serde_json::json!({"schedule": {"max_attempts": 3}, "spacing": null}),
        secrets: vec![
            secret("signing", &[0, 255, 1, 128], 1, Some(90_000)),
            secret("signing", b"\0newer", 2, None),
            secret("token", b"", 3, None),
        ],
        updated_at: at(5),
        ..subscription(tenant)
    };
    rich.filter.any_of[0].attributes.insert("colour".to_owned(), "red".into());
    rich
}

fn plain(number: u128, tenant: TenantId) -> Subscription {
    let destination = Destination::Webhook { url: format!("https://plain.test/{number}") };
    Subscription { id: subscription_id(number), destination, ..subscription(tenant) }
}

fn stopped(number: u128, status: SubscriptionStatus) -> Subscription {
    let mut stopped = rich(number, tenant_id(ACME));
    stopped.secrets.clear();
    stopped.turn(SubscriptionStatus::Paused, at(10));
    stopped.turn(SubscriptionStatus::Active, at(20));
    stopped.turn(status, at(30));
    stopped
}

fn push() -> Subscription {
    let target = PushTarget {
        agent: AgentId::from_random(1),
        channel: ChannelId::from_random(2),
        p256dh: Some("BPublic".into()),
        ttl: 60,
        urgency: PushUrgency::Normal,
        topic: None,
    };
    Subscription { destination: Destination::Push(target), ..plain(PUSH, tenant_id(ACME)) }
}

fn foreign() -> Subscription {
    // The name of another tenant's, and no labels.
    let labels = Labels::default();
    let name = rich(HOOK, tenant_id(ACME)).name;
    Subscription { name, labels, ..plain(FOREIGN, tenant_id(OTHER)) }
}

/// Those that are there in the end, as the script has left them.
fn subscriptions() -> Vec<Subscription> {
    let reason = "it answered 410 – \"gone\"".to_owned();
    vec![
        rich(HOOK, tenant_id(ACME)),
        plain(LANES, tenant_id(ACME)),
        stopped(DISABLED, SubscriptionStatus::Disabled { reason }),
        push(),
        foreign(),
        stopped(PAUSED, SubscriptionStatus::Paused),
    ]
}

fn keys() -> Vec<ApiKey> {
    let key = |number, tenant: Option<u128>| ApiKey {
        id: KeyId::new(at(0), number),
        description: format!("key {number}"),
        hash: std::array::from_fn(|place| place as u8 ^ 0xa5),
        ..api_key(tenant.map(tenant_id))
    };
    vec![
        ApiKey { expires_at: None, rate_limit: None, ..key(1, None) },
        ApiKey { expires_at: Some(at(2)), ..key(2, None) },
        ApiKey { scopes: vec![Scope::Publish, Scope::Manage], ..key(3, Some(ACME)) },
        ApiKey { revoked_at: Some(at(60)), expires_at: None, ..key(4, Some(ACME)) },
        ApiKey { scopes: Vec::new(), ..key(5, Some(OTHER)) },
    ]
}

fn certificates() -> Vec<Certificate> {
    let named = |number: u8, tenant: u128, kind| Certificate {
        id: CertificateId::new(at(0), number.into()),
        thumbprint: posthorn_domain::Thumbprint([number; 32]),
        pem: format!("-----BEGIN CERTIFICATE-----\n{number}\n"),
        ..certificate(tenant_id(tenant), kind)
    };
    let authority = named(3, ACME, CertificateKind::Authority);
    vec![
        named(1, ACME, CertificateKind::Client),
        Certificate { sealed_key: None, ..named(2, OTHER, CertificateKind::Caller) },
        Certificate { scopes: vec![], owner: String::new(), revoked_at: Some(at(70)), ..authority },
    ]
}

fn topics() -> Vec<Topic> {
    let orders = topic(tenant_id(ACME), "orders");
    vec![
        Topic { attributes: vec!["colour".to_owned(), "size".to_owned()], ..orders },
        Topic { labels: Labels::default(), ..topic(tenant_id(OTHER), "orders/eu:1.x") },
    ]
}

fn profile(name: &str) -> TenantProfile {
    TenantProfile {
        tenant: tenant_id(ACME),
        name: ProfileName::new(name).expect("a proper name"),
        base: ProfileName::new("default").expect("a proper name"),
        policy: serde_json::json!({"schedule": {"max_attempts": 3}, "spacing": null}),
        updated_at: at(4),
    }
}

fn client(name: &str) -> Client {
    Client {
        tenant: tenant_id(ACME),
        name: ClientName::new(name).expect("a proper name"),
        sealed_secret: Some(Bytes::from_static(b"\0sealed\xff")),
        scopes: None,
        updated_at: at(6),
        version: CatalogVersion(0),
    }
}

fn clients() -> Vec<Client> {
    let scopes = Some(vec!["a.b".to_owned(), "c \"d\"".to_owned()]);
    vec![client("open zaak é"), Client { sealed_secret: None, scopes, ..client("other") }]
}

async fn change(store: &dyn Store, change: CatalogChange) -> CatalogVersion {
    store.change_catalog(change).await.expect("a proper change")
}

async fn fill_catalog(store: &dyn Store) {
    change(store, CatalogChange::CreateTenant(tenant(ACME, "acme"))).await;
    change(store, CatalogChange::CreateTenant(tenant(OTHER, "other é"))).await;
    for topic in topics() {
        let early = Topic { description: "first".to_owned(), ..topic.clone() };
        change(store, CatalogChange::CreateTopic(early)).await;
        change(store, CatalogChange::PutTopic(Topic { created_at: at(9), ..topic })).await;
    }
    let gone = topic(tenant_id(ACME), "gone");
    change(store, CatalogChange::CreateTopic(gone.clone())).await;
    change(store, CatalogChange::DeleteTopic { tenant: gone.tenant, name: gone.name }).await;
    let (patient, gone) = (profile("patient"), profile("gone"));
    for profile in [&patient, &gone] {
        change(store, CatalogChange::PutProfile(profile.clone())).await;
    }
    change(store, CatalogChange::DeleteProfile { tenant: gone.tenant, name: gone.name }).await;
    let none = CatalogVersion(0);
    for client in clients().into_iter().chain([client("gone")]) {
        let client = Box::new(client);
        change(store, CatalogChange::PutClient { client, expected: none }).await;
    }
    let gone = client("gone");
    change(store, CatalogChange::DeleteClient { tenant: gone.tenant, name: gone.name }).await;
    for key in keys() {
        let (id, revoked) = (key.id, key.revoked_at);
        change(store, CatalogChange::CreateKey(ApiKey { revoked_at: None, ..key })).await;
        if let Some(at) = revoked {
            change(store, CatalogChange::RevokeKey { id, at }).await;
        }
    }
    let uses = keys().iter().take(3).map(|key| (key.id, key.created_at)).collect();
    store.touch_keys(uses).await.expect("keys that are there");
    fill_certificates(store).await;
    for new in subscriptions().into_iter().chain([
        rich(SWEPT, tenant_id(ACME)),
        Subscription { name: None, ..rich(UNSWEPT, tenant_id(ACME)) },
    ]) {
        let first = Subscription { description: "first".to_owned(), ..plain_of(&new) };
        change(store, CatalogChange::CreateSubscription(Box::new(first))).await;
        let subscription = Box::new(Subscription { created_at: at(99), ..new });
        change(store, CatalogChange::UpdateSubscription { subscription, expected: None }).await;
    }
}

/// As it was before its first change.
fn plain_of(new: &Subscription) -> Subscription {
    Subscription {
        id: new.id,
        secrets: new.secrets[..new.secrets.len() / 2].to_vec(),
        ..plain(0, new.tenant)
    }
}

async fn fill_certificates(store: &dyn Store) {
    for new in certificates() {
        let revoked = new.revoked_at;
        let (tenant, id) = (new.tenant, new.id);
        let first = Certificate { revoked_at: None, pem: "first".to_owned(), ..new.clone() };
        let expected = change(store, CatalogChange::CreateCertificate(Box::new(first))).await;
        if let Some(at) = revoked {
            change(store, CatalogChange::RevokeCertificate { tenant, id, at }).await;
        }
        let certificate = Box::new(new);
        if revoked.is_none() {
            change(store, CatalogChange::UpdateCertificate { certificate, expected }).await;
        }
    }
    let gone = Certificate {
        id: CertificateId::new(at(0), 4),
        thumbprint: posthorn_domain::Thumbprint([4; 32]),
        ..certificate(tenant_id(ACME), CertificateKind::Caller)
    };
    let (tenant, id) = (gone.tenant, gone.id);
    change(store, CatalogChange::CreateCertificate(Box::new(gone))).await;
    change(store, CatalogChange::DeleteCertificate { tenant, id }).await;
}

fn lane(key: &str) -> Option<Lane> {
    Some(Lane::Key(LaneKey::new(key).expect("a proper key")))
}

/// Publishes event `number` of a tenant to one subscription; the delivery has the same number.
async fn publish(setting: &Setting, number: u128, to: Option<u128>, lane: Option<Lane>) {
    publish_for(setting, number, to, lane, None).await;
}

/// The same for an event that is to be delivered later.
async fn publish_for(
    setting: &Setting,
    number: u128,
    to: Option<u128>,
    lane: Option<Lane>,
    deliver_at: Option<Timestamp>,
) {
    let new = planned(setting, number, to, lane, deliver_at).await;
    setting.accept(new).await;
}

async fn planned(
    setting: &Setting,
    number: u128,
    to: Option<u128>,
    lane: Option<Lane>,
    deliver_at: Option<Timestamp>,
) -> NewEvent {
    let event = Event {
        id: EventId::new(at(0), number),
        tenant: setting.tenant,
        topic: TopicName::new("orders").expect("a proper name"),
        event_type: EventType::new("order.created").expect("a proper type"),
        attributes: BTreeMap::from([("colour".to_owned(), "red é".to_owned())]),
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from(format!("{{\"number\":{number}}}")),
        accepted_at: at(100),
        publisher_id: None,
        deliver_at,
        retention: None,
        expunged_at: None,
        trace: None,
    };
    let delivery = |to| NewDelivery {
        id: delivery_id(number),
        subscription: subscription_id(to),
        lane,
        due_at: at(100),
    };
    NewEvent {
        event: Arc::new(event),
        idempotency: Some(idempotency(&format!("key {number}"), 1)),
        catalog: setting.version_of(setting.tenant).await,
        deliveries: to.map(delivery).into_iter().collect(),
    }
}

/// Records what became of a delivery, with an attempt that says something in every field.
async fn end(setting: &Setting, number: u128, step: posthorn_domain::delivery::Step, when: i64) {
    let mut record = setting.report(delivery_id(number), step, at(when)).await;
    let failure = (step.state != posthorn_domain::DeliveryState::Delivered).then_some(());
    record.attempt = record.attempt.map(|told| Attempt {
        status: if failure.is_some() { None } else { Some(204) },
        failure: failure.map(|()| FailureCode::ResponseTimeout),
        detail: "told é".to_owned(),
        response: Bytes::from_static(b"\0answer"),
        ..attempt(told.delivery, told.number, 200)
    });
    setting.record_one(record).await;
}

async fn fill_deliveries(store: &Arc<dyn Store>) {
    let node = NodeId::new(at(0), 1);
    let acme = Setting::on(Arc::clone(store), tenant_id(ACME), node).await;
    let other = Setting::on(Arc::clone(store), tenant_id(OTHER), node).await;
    for (number, to, lane) in [
        (101, HOOK, None),
        (102, HOOK, None),
        (103, HOOK, None),
        (104, LANES, lane("waits")),
        (105, LANES, lane("waits")),
        (106, LANES, lane("blocked")),
        (107, LANES, lane("blocked")),
        (108, LANES, lane("displaced")),
        (109, LANES, lane("displaced")),
        (110, LANES, Some(Lane::Subscription)),
        (111, SWEPT, None),
        (112, HOOK, None),
        (113, HOOK, None),
        (114, HOOK, None),
        (115, HOOK, None),
        (116, HOOK, None),
        (117, UNSWEPT, lane("left")),
        (118, UNSWEPT, lane("left")),
        (119, PUSH, None),
    ] {
        publish(&acme, number, Some(to), lane).await;
    }
    publish(&acme, 120, None, None).await;
    publish(&other, 121, Some(FOREIGN), None).await;
    publish(&other, 122, Some(FOREIGN), None).await;

    end(&acme, 101, delivered(), 200).await;
    end(&acme, 102, failed(at(300)), 201).await;
    end(&acme, 102, dead_skip(), 301).await;
    end(&acme, 103, failed(at(900_000)), 202).await;
    end(&acme, 106, dead_block(), 203).await;
    end(&acme, 108, dead_skip(), 204).await;
    end(&acme, 119, delivered(), 205).await;
    end(&other, 121, delivered(), 206).await;
    acme.lease(delivery_id(110), at(999_000)).await;
    for (number, when) in [(112, 210), (113, 211)] {
        end(&acme, number, dead_skip(), when).await;
    }
    let by_hand = "something that can be done by hand";
    let tenant = acme.tenant;
    store.cancel_delivery(tenant, delivery_id(114), at(220)).await.expect(by_hand);
    store.retry_delivery(tenant, delivery_id(115), at(221)).await.expect(by_hand);
    store.forget_delivery(tenant, delivery_id(116), at(222)).await.expect(by_hand);
    // Its head came later, and waits now.
    store.retry_delivery(tenant, delivery_id(108), at(223)).await.expect(by_hand);
    let mut record = acme.report(delivery_id(103), failed(at(900_001)), at(230)).await;
    let streak = Streak { since: at(202), exhausted: true, told: false };
    let subscription = subscription_id(HOOK);
    record.standing = Some(Standing { subscription, failing: Some(streak) });
    acme.record_one(record).await;
    acme.unsubscribe(subscription_id(SWEPT), at(240)).await;
    store.sweep_cancelled(10, at(241)).await.expect("a sweep");
    acme.unsubscribe(subscription_id(UNSWEPT), at(242)).await;
    fill_redrives(store, tenant).await;
}

async fn fill_redrives(store: &Arc<dyn Store>, tenant: TenantId) {
    let new = |number, subscription| {
        let wanted = redrive(tenant, at(5_000));
        let filter = RedriveFilter { subscription, ..wanted.filter };
        Redrive { id: RedriveId::new(at(0), number), filter, ..wanted }
    };
    let expected = "a redrive";
    let running = new(1, Some(subscription_id(HOOK)));
    store.create_redrive(running.clone()).await.expect(expected);
    store.advance_redrive(running.id, 1, at(250), None).await.expect(expected);
    store.create_redrive(new(2, None)).await.expect(expected);
    store.cancel_redrive(tenant, RedriveId::new(at(0), 2), at(251), None).await.expect(expected);
    let done = new(3, Some(subscription_id(PUSH)));
    store.create_redrive(done.clone()).await.expect(expected);
    store.advance_redrive(done.id, 5, at(252), None).await.expect(expected);
}

/// Fills an empty store. A dump of what it leaves is what [`check`] is for.
pub async fn fill(store: &Arc<dyn Store>) {
    fill_catalog(&**store).await;
    fill_deliveries(store).await;
}

/// What both do after everything was compared: the older version's things go on.
async fn go_on(store: &Arc<dyn Store>) {
    let acme = Setting::on(Arc::clone(store), tenant_id(ACME), NodeId::new(at(0), 1)).await;
    let again = "something an upgraded store can do";
    let mut resumed = stopped(DISABLED, SubscriptionStatus::Active);
    resumed.turn(SubscriptionStatus::Active, at(400));
    let changes = [
        CatalogChange::UpdateSubscription { subscription: Box::new(resumed), expected: None },
        CatalogChange::UpdateSubscription {
            subscription: Box::new(Subscription { secrets: vec![], ..rich(HOOK, acme.tenant) }),
            expected: None,
        },
        CatalogChange::DeleteSubscription {
            tenant: tenant_id(OTHER),
            id: subscription_id(FOREIGN),
            at: at(401),
        },
        CatalogChange::CreateSubscription(Box::new(rich(19, tenant_id(OTHER)))),
        CatalogChange::CreateTopic(topic(acme.tenant, "gone")),
        CatalogChange::PutProfile(profile("gone")),
        CatalogChange::RevokeKey { id: keys()[2].id, at: at(402) },
        CatalogChange::RevokeKey { id: keys()[3].id, at: at(403) },
        CatalogChange::CreateTenant(tenant(3, "third")),
        CatalogChange::DeleteCertificate { tenant: acme.tenant, id: certificates()[0].id },
    ];
    for change in changes {
        store.change_catalog(change).await.expect(again);
    }
    publish(&acme, 130, Some(HOOK), None).await;
    publish(&acme, 131, Some(LANES), lane("waits")).await;
    end(&acme, 104, delivered(), 410).await;
    end(&acme, 115, delivered(), 411).await;
    end(&acme, 108, delivered(), 412).await;
    store.cancel_delivery(acme.tenant, delivery_id(106), at(413)).await.expect(again);
    store.retry_delivery(acme.tenant, delivery_id(101), at(414)).await.expect(again);
    store.sweep_cancelled(100, at(415)).await.expect(again);
    store.advance_redrive(RedriveId::new(at(0), 1), 5, at(416), None).await.expect(again);
    store.touch_keys(vec![(keys()[4].id, at(417))]).await.expect(again);
    publish_for(&acme, 132, Some(LANES), lane("later"), Some(at(500))).await;
    let published = planned(&acme, 101, Some(HOOK), None, None).await;
    usable::check_key(&acme, published).await;
    store.enter_lanes(10, at(500)).await.expect(again);
}

/// The script makes changes that are refused: what is taken stays taken.
async fn check_refusals(store: &dyn Store) {
    let twin = Certificate { id: CertificateId::new(at(0), 9), ..certificates()[1].clone() };
    let named =
        Subscription { name: rich(HOOK, tenant_id(ACME)).name, ..plain(29, tenant_id(ACME)) };
    let (id, at) = (keys()[0].id, at(500));
    for change in [
        CatalogChange::CreateTenant(tenant(9, "acme")),
        CatalogChange::CreateTenant(tenant(ACME, "nine")),
        CatalogChange::CreateTopic(topics()[0].clone()),
        CatalogChange::CreateSubscription(Box::new(plain(SWEPT, tenant_id(ACME)))),
        CatalogChange::CreateSubscription(Box::new(named)),
        CatalogChange::CreateCertificate(Box::new(twin)),
        CatalogChange::CreateFirstKey(ApiKey { id: KeyId::new(at, 9), ..keys()[0].clone() }),
        CatalogChange::CreateKey(keys()[1].clone()),
        CatalogChange::RevokeKey { id, at },
    ] {
        let shown = format!("{change:?}");
        assert!(store.change_catalog(change).await.is_err(), "{shown}");
    }
}

/// Everything the script has made is there, and what was made by an older version goes on.
pub async fn check(store: &Arc<dyn Store>) {
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(Still)));
    fill(&model).await;
    check_script(&**store).await;
    compare(store, &model).await;
    check_refusals(&**store).await;
    go_on(store).await;
    go_on(&model).await;
    compare(store, &model).await;
    check_audit(&**store).await;
}

/// What an older version did not know of is empty, and works.
async fn check_audit(store: &dyn Store) {
    let all = || store.audit(AuditFilter::default(), Listing::newest(10));
    assert_eq!(all().await.expect("a list").items, []);
    let line = crate::audit::line(tenant_id(ACME), AuditAction::TopicCreated, at(9_000));
    let put = CatalogChange::PutTopic(topic(tenant_id(ACME), "later"));
    store.change_catalog_with(put, line.clone().into()).await.expect("changed");
    assert_eq!(all().await.expect("a list").items, [line]);
}

/// For a model that is used up before its leases end.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        at(0)
    }
}

async fn check_script(store: &dyn Store) {
    let found = store.catalog_since(CatalogVersion(0)).await.expect("the catalog");
    let unversioned = CatalogVersion(0);
    let subscriptions_found = found
        .subscriptions
        .into_iter()
        .map(|found| Subscription { version: unversioned, ..found })
        .collect();
    assert_eq!(sorted(subscriptions_found), sorted(subscriptions()));
    let certificates_found = found
        .certificates
        .into_iter()
        .map(|found| Certificate { version: unversioned, ..found })
        .collect();
    let mut wanted = certificates();
    // The one that was revoked was never updated.
    wanted[2].pem = "first".to_owned();
    assert_eq!(sorted(certificates_found), sorted(wanted));
    let clients_found =
        found.clients.into_iter().map(|found| Client { version: unversioned, ..found }).collect();
    assert_eq!(sorted(clients_found), sorted(clients()));
    assert_eq!(sorted(found.keys), sorted(keys()));
    assert_eq!(sorted(found.topics), sorted(topics()));
    assert_eq!(found.profiles, [profile("patient")]);
}

/// By what they show of themselves, which begins with their ids or names.
fn sorted<T: Debug>(mut things: Vec<T>) -> Vec<T> {
    things.sort_by_key(|thing| format!("{thing:?}"));
    things
}

async fn compare(store: &Arc<dyn Store>, model: &Arc<dyn Store>) {
    let last = model.catalog_since(CatalogVersion(0)).await.expect("the catalog").version;
    for since in 0..=last.0 {
        let since = CatalogVersion(since);
        let found = store.catalog_since(since).await.expect("a delta");
        let wanted = model.catalog_since(since).await.expect("a delta");
        compare_catalogs(found, wanted);
    }
    for tenant in [ACME, OTHER].map(tenant_id) {
        compare_histories(&**store, &**model, tenant).await;
    }
    let (found, wanted) = (store.counts(None).await, model.counts(None).await);
    assert_eq!(found.expect("counts"), wanted.expect("counts"));
    let (found, wanted) = (store.keys_used().await, model.keys_used().await);
    assert_eq!(sorted(found.expect("uses")), sorted(wanted.expect("uses")));
    let shards = all_shards();
    let (found, wanted) = (store.failing(&shards).await, model.failing(&shards).await);
    assert_eq!(sorted(found.expect("streaks")), sorted(wanted.expect("streaks")));
    let (found, wanted) =
        (store.due_subscriptions(&shards).await, model.due_subscriptions(&shards).await);
    assert_eq!(sorted(found.expect("work")), sorted(wanted.expect("work")));
    let (found, wanted) = (store.pending_by_tenant().await, model.pending_by_tenant().await);
    assert_eq!(sorted(found.expect("numbers")), sorted(wanted.expect("numbers")));
}

fn compare_catalogs(found: CatalogDelta, wanted: CatalogDelta) {
    assert_eq!(found.version, wanted.version);
    assert_eq!(sorted(found.tenants), sorted(wanted.tenants));
    assert_eq!(sorted(found.topics), sorted(wanted.topics));
    assert_eq!(sorted(found.removed_topics), sorted(wanted.removed_topics));
    assert_eq!(sorted(found.subscriptions), sorted(wanted.subscriptions));
    assert_eq!(sorted(found.removed_subscriptions), sorted(wanted.removed_subscriptions));
    assert_eq!(sorted(found.profiles), sorted(wanted.profiles));
    assert_eq!(sorted(found.removed_profiles), sorted(wanted.removed_profiles));
    assert_eq!(sorted(found.clients), sorted(wanted.clients));
    assert_eq!(sorted(found.removed_clients), sorted(wanted.removed_clients));
    assert_eq!(sorted(found.keys), sorted(wanted.keys));
    assert_eq!(sorted(found.certificates), sorted(wanted.certificates));
    assert_eq!(sorted(found.removed_certificates), sorted(wanted.removed_certificates));
    assert_eq!(found.recalls, wanted.recalls);
}

async fn compare_histories(store: &dyn Store, model: &dyn Store, tenant: TenantId) {
    let (events, page) = (EventFilter::default, Listing::newest(1_000));
    let (found, wanted) =
        (store.events(tenant, events(), page).await, model.events(tenant, events(), page).await);
    assert_eq!(found.expect("events").items, wanted.expect("events").items);
    let all = DeliveryFilter::default;
    let found = store.deliveries(tenant, all(), page).await.expect("deliveries").items;
    let wanted: Vec<Delivery> =
        model.deliveries(tenant, all(), page).await.expect("deliveries").items;
    assert_eq!(found, wanted);
    let all = AttemptFilter::default;
    let made = store.attempts_made(tenant, all(), page).await.expect("attempts").items;
    let wanted_made = model.attempts_made(tenant, all(), page).await.expect("attempts").items;
    assert_eq!(by_delivery(made), by_delivery(wanted_made));
    let (found_counts, wanted_counts) =
        (store.counts(Some(tenant)).await, model.counts(Some(tenant)).await);
    assert_eq!(found_counts.expect("counts"), wanted_counts.expect("counts"));
    for delivery in wanted {
        let (found, wanted) =
            (store.attempts(tenant, delivery.id).await, model.attempts(tenant, delivery.id).await);
        assert_eq!(found.expect("attempts"), wanted.expect("attempts"));
    }
    let page = RedrivePage { before: None, limit: 100 };
    let (found, wanted) = (store.redrives(tenant, page).await, model.redrives(tenant, page).await);
    assert_eq!(found.expect("redrives").items, wanted.expect("redrives").items);
}

/// Older stores did not keep the order over deliveries, nor who had asked.
fn by_delivery(mut lines: Vec<AttemptLine>) -> Vec<AttemptLine> {
    lines.sort_by_key(|line| (line.attempt.delivery, line.attempt.number, line.attempt.started_at));
    lines
}
