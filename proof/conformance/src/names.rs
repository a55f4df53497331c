//! Cases about names and labels of subscriptions, profiles and clients of tenants.

use std::collections::BTreeMap;

use posthorn_domain::{
    CatalogVersion, Client, ClientName, Metadata, ProfileName, Subscription, SubscriptionName,
    TenantId, TenantProfile,
};
use serde_json::json;

use super::Fixture;
use super::builders::{Setting, at, labels, subscription, unique};
use super::changes::{change, refused, since};
use posthorn_store::{CatalogChange, Error, Refusal, Result};

fn named(tenant: TenantId, name: &str) -> Subscription {
    let name = SubscriptionName::new(name).expect("the case chose a proper name");
    Subscription { name: Some(name), ..subscription(tenant) }
}

async fn create(setting: &Setting, subscription: &Subscription) -> Result<CatalogVersion> {
    change(setting, CatalogChange::CreateSubscription(Box::new(subscription.clone()))).await
}

async fn update(setting: &Setting, subscription: &Subscription) -> Result<CatalogVersion> {
    let subscription = Box::new(subscription.clone());
    change(setting, CatalogChange::UpdateSubscription { subscription, expected: None }).await
}

/// Names and labels come back as they were written, are replaced by an update, and can be taken away.
pub async fn names_and_labels_read_back(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut one = named(setting.tenant, "DE/cb 001 é");
    one.labels = labels(&[("country", "DE"), ("note", "\"quoted\" \u{1F4EF}")]);
    let metadata = |name: &str, text: &str| {
        let pairs = BTreeMap::from([(name.to_owned(), text.to_owned())]);
        Metadata::try_from(pairs).expect("small enough")
    };
    one.metadata = metadata("any name \u{1F4EF} \u{0}", &"x".repeat(4_000));
    one.version = create(&setting, &one).await.expect("create");
    assert_eq!(since(&setting, CatalogVersion(0)).await.subscriptions, [one.clone()]);
    one.labels = labels(&[("country", "FR")]);
    one.metadata = metadata("another", "text");
    one.name = None;
    one.version = update(&setting, &one).await.expect("update");
    let setting = setting.reopen(fixture).await;
    assert_eq!(since(&setting, CatalogVersion(0)).await.subscriptions, [one]);
}

/// A name stands for one subscription of a tenant, until that is deleted or renamed.
pub async fn names_are_unique_among_those_that_exist(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let first = named(setting.tenant, "a");
    create(&setting, &first).await.expect("create");
    let before = since(&setting, CatalogVersion(0)).await;
    refused(create(&setting, &named(setting.tenant, "a")).await, Refusal::AlreadyExists);
    let mut second = named(setting.tenant, "A");
    create(&setting, &second).await.expect("names differ in case");
    second.name.clone_from(&first.name);
    refused(update(&setting, &second).await, Refusal::AlreadyExists);
    let after = since(&setting, before.version).await;
    assert_eq!(after.subscriptions.len(), 1, "what was refused left nothing");

    let other = setting.other_tenant().await;
    create(&setting, &named(other, "a")).await.expect("another tenant's names are its own");
    update(&setting, &first).await.expect("one keeps its own name");
    setting.unsubscribe(first.id, at(1)).await;
    update(&setting, &second).await.expect("the name of a deleted one is free");
    let third = named(setting.tenant, "A");
    create(&setting, &third).await.expect("so is a name that was given up");
}

/// Whoever comes first gets the name, however many try at once.
pub async fn one_of_many_gets_a_name(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = setting.store.clone();
        let new = named(setting.tenant, "wanted");
        tries.spawn(async move {
            store.change_catalog(CatalogChange::CreateSubscription(Box::new(new))).await
        });
    }
    let mut won = 0;
    for result in tries.join_all().await {
        match result {
            Ok(_) => won += 1,
            Err(Error::Refused(refusal)) => assert_eq!(refusal, Refusal::AlreadyExists),
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(since(&setting, CatalogVersion(0)).await.subscriptions.len(), 1);
}

/// Profiles of tenants are put, replaced and removed, and others learn of each.
pub async fn profiles_of_tenants_come_and_go(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let name = |text: &str| ProfileName::new(text).expect("a proper name");
    let profile = TenantProfile {
        tenant: setting.tenant,
        name: name("patient"),
        base: name("default"),
        policy: json!({"schedule": {"max_attempts": 3}, "spacing": null}),
        updated_at: at(1),
    };
    let put = |profile: &TenantProfile| CatalogChange::PutProfile(profile.clone());
    let first = change(&setting, put(&profile)).await.expect("put");
    assert_eq!(setting.version_of(setting.tenant).await, first, "it is a change of the tenant");
    assert_eq!(since(&setting, CatalogVersion(0)).await.profiles, *std::slice::from_ref(&profile));
    let again = TenantProfile { base: name("other"), policy: json!({}), ..profile.clone() };
    let second = change(&setting, put(&again)).await.expect("put");
    let setting = setting.reopen(fixture).await;
    assert_eq!(since(&setting, first).await.profiles, [again]);
    assert!(since(&setting, second).await.profiles.is_empty());

    let (tenant, other) = (setting.tenant, setting.other_tenant().await);
    let delete = |tenant| CatalogChange::DeleteProfile { tenant, name: name("patient") };
    refused(change(&setting, delete(other)).await, Refusal::NotFound);
    change(&setting, delete(tenant)).await.expect("delete");
    refused(change(&setting, delete(tenant)).await, Refusal::NotFound);
    let delta = since(&setting, second).await;
    assert_eq!(delta.removed_profiles, [(tenant, name("patient"))]);
    assert!(delta.profiles.is_empty());
    change(&setting, put(&profile)).await.expect("put after delete");
    assert_eq!(since(&setting, delta.version).await.profiles, *std::slice::from_ref(&profile));
    let stranger = TenantProfile { tenant: TenantId::new(at(0), unique().into()), ..profile };
    refused(change(&setting, put(&stranger)).await, Refusal::NotFound);
}

/// Clients are put, replaced by whoever read what is there, and removed; others learn of each.
pub async fn clients_come_and_go_by_version(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let name = ClientName::new("open zaak \u{e9}").expect("a proper name");
    let client = Client {
        tenant: setting.tenant,
        name: name.clone(),
        sealed_secret: Some(bytes::Bytes::from_static(b"\0sealed\xff")),
        scopes: None,
        updated_at: at(1),
        version: CatalogVersion(0),
    };
    let put = |client: &Client, expected| CatalogChange::PutClient {
        client: Box::new(client.clone()),
        expected,
    };
    let none = CatalogVersion(0);
    let first = change(&setting, put(&client, none)).await.expect("put");
    assert_eq!(setting.version_of(setting.tenant).await, first, "it is a change of the tenant");
    let read = Client { version: first, ..client.clone() };
    assert_eq!(since(&setting, none).await.clients, [read]);
    let stale = Refusal::VersionMismatch { current: first };
    refused(change(&setting, put(&client, none)).await, stale);
    refused(change(&setting, put(&client, CatalogVersion(first.0 + 1))).await, stale);

    let scopes = Some(vec!["a.b".to_owned(), "c \"d\"".to_owned()]);
    let again = Client { sealed_secret: None, scopes, updated_at: at(2), ..client.clone() };
    let second = change(&setting, put(&again, first)).await.expect("put");
    let setting = setting.reopen(fixture).await;
    let read = Client { version: second, ..again };
    assert_eq!(since(&setting, first).await.clients, [read]);
    assert!(since(&setting, second).await.clients.is_empty());

    let (tenant, other) = (setting.tenant, setting.other_tenant().await);
    let delete = |tenant| CatalogChange::DeleteClient { tenant, name: name.clone() };
    refused(change(&setting, delete(other)).await, Refusal::NotFound);
    change(&setting, delete(tenant)).await.expect("delete");
    refused(change(&setting, delete(tenant)).await, Refusal::NotFound);
    let delta = since(&setting, second).await;
    assert_eq!(delta.removed_clients, [(tenant, name.clone())]);
    assert!(delta.clients.is_empty());
    let last = change(&setting, put(&client, none)).await.expect("put after delete");
    let read = Client { version: last, ..client.clone() };
    assert_eq!(since(&setting, delta.version).await.clients, [read]);
    let stranger = Client { tenant: TenantId::new(at(0), unique().into()), ..client };
    refused(change(&setting, put(&stranger, none)).await, Refusal::NotFound);
}
