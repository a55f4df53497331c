//! Cases about realms, what they own, and what is said of tenants.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::{
    ApiKey, CatalogVersion, EventType, ExternalId, KnownType, Metadata, Realm, RealmDefaults,
    RealmName, SchemaVersion, Scope, Tenant, TenantChange, TenantId, Timestamp, Validation,
};

use super::Fixture;
use super::builders::{Setting, api_key, at, labels, tenant, unique};
use super::changes::{change, refused, since};
use posthorn_store::{CatalogChange, Refusal};

fn realm_name(text: &str) -> RealmName {
    RealmName::new(text).expect("the case chose a proper name")
}

fn realm(name: &str) -> Realm {
    Realm {
        description: format!("about {name}"),
        defaults: RealmDefaults { profile: None, deliveries_per_second: Some(7) },
        validation: Validation::Known,
        updated_at: at(1),
        ..Realm::new(realm_name(name), at(0))
    }
}

fn known_type(realm: &str, name: &str) -> KnownType {
    KnownType {
        realm: realm_name(realm),
        name: EventType::new(name).expect("the case chose a proper type"),
        description: "something happened".to_owned(),
        group: Some("orders".to_owned()),
        schemas: BTreeMap::from([(SchemaVersion(2), serde_json::json!({"type": "object"}))]),
        examples: vec![serde_json::json!({"a": [1, null]})],
        archived: false,
        deprecated: true,
        feature_flags: BTreeSet::from(["beta".to_owned()]),
        created_at: at(0),
        updated_at: at(0),
    }
}

fn external(text: &str) -> ExternalId {
    ExternalId::new(text).expect("the case chose a proper id")
}

fn in_realm(name: &str) -> Tenant {
    Tenant { realm: realm_name(name), ..tenant() }
}

fn key_of(realm: &str) -> ApiKey {
    ApiKey {
        realm: Some(realm_name(realm)),
        scopes: vec![Scope::Manage],
        expires_at: None,
        ..api_key(None)
    }
}

async fn put(setting: &Setting, realm: Realm) {
    change(setting, CatalogChange::PutRealm(realm)).await.expect("put");
}

async fn made(setting: &Setting, tenant: &Tenant) {
    change(setting, CatalogChange::CreateTenant(tenant.clone())).await.expect("a new tenant");
}

async fn found(setting: &Setting, id: TenantId) -> Tenant {
    let all = since(setting, CatalogVersion(0)).await.tenants;
    all.into_iter().find(|entry| entry.tenant.id == id).expect("it is there").tenant
}

/// As they were written; what is put again keeps its birth.
pub async fn realms_read_back_and_keep_their_birth(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    assert!(
        since(&setting, CatalogVersion(0)).await.realms.is_empty(),
        "the default one says nothing"
    );
    let new = realm("eu:prod/1");
    put(&setting, new.clone()).await;
    let version = since(&setting, CatalogVersion(0)).await.version;
    let again = Realm { description: String::new(), created_at: at(50), ..new.clone() };
    put(&setting, again.clone()).await;
    let delta = since(&setting, version).await;
    assert_eq!(delta.realms, [Realm { created_at: new.created_at, ..again.clone() }]);
    assert!(delta.tenants.is_empty(), "no plan is stale because of it");
    // Something may be said about the default one as well.
    let default = Realm { validation: Validation::Schema, ..realm(RealmName::DEFAULT) };
    put(&setting, default.clone()).await;
    let setting = setting.reopen(fixture).await;
    let mut realms = since(&setting, CatalogVersion(0)).await.realms;
    realms.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(realms, [default, Realm { created_at: new.created_at, ..again }]);
}

/// A realm goes when nothing is in it, and can be made again.
pub async fn a_realm_goes_when_it_is_empty(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let delete = || change(&setting, CatalogChange::DeleteRealm(realm_name("r")));
    refused(delete().await, Refusal::NotFound);
    put(&setting, realm("r")).await;
    put(&setting, realm("r2")).await;
    let key = key_of("r");
    change(&setting, CatalogChange::CreateKey(key.clone())).await.expect("a key");
    change(&setting, CatalogChange::CreateKey(key_of("r2"))).await.expect("a key");
    refused(delete().await, Refusal::NotEmpty);
    change(&setting, CatalogChange::RevokeKey { id: key.id, at: at(1) }).await.expect("revoked");
    let kind = known_type("r", "a.b");
    change(&setting, CatalogChange::PutEventType(Box::new(kind.clone()))).await.expect("put");
    refused(delete().await, Refusal::NotEmpty);
    let gone = CatalogChange::DeleteEventType { realm: kind.realm, name: kind.name };
    change(&setting, gone.clone()).await.expect("deleted");
    refused(change(&setting, gone).await, Refusal::NotFound);
    let version = since(&setting, CatalogVersion(0)).await.version;
    delete().await.expect("nothing is in it any more");
    assert_eq!(since(&setting, version).await.removed_realms, [realm_name("r")]);
    put(&setting, realm("r")).await;
    made(&setting, &in_realm("r")).await;
    refused(delete().await, Refusal::NotEmpty);
    let default = CatalogChange::DeleteRealm(RealmName::default());
    refused(change(&setting, default).await, Refusal::NotEmpty);
}

/// Nothing can be put into a realm that is not there.
pub async fn unknown_realms_take_nothing_in(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let before = since(&setting, CatalogVersion(0)).await.version;
    for new in [
        CatalogChange::CreateTenant(in_realm("nowhere")),
        CatalogChange::CreateKey(key_of("nowhere")),
        CatalogChange::PutEventType(Box::new(known_type("nowhere", "a"))),
    ] {
        refused(change(&setting, new).await, Refusal::NotFound);
    }
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, before);
    made(&setting, &in_realm(RealmName::DEFAULT)).await;
    change(&setting, CatalogChange::CreateKey(key_of(RealmName::DEFAULT))).await.expect("a key");
}

/// The key of a realm is no operator's, however long it works.
pub async fn keys_of_realms_replace_no_operator_key(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let operators = ApiKey { expires_at: None, ..api_key(None) };
    let realms = key_of(RealmName::DEFAULT);
    change(&setting, CatalogChange::CreateKey(realms.clone())).await.expect("a key");
    let first = CatalogChange::CreateFirstKey(operators.clone());
    change(&setting, first).await.expect("there is none yet");
    let revoke =
        |key: &ApiKey| change(&setting, CatalogChange::RevokeKey { id: key.id, at: at(5) });
    refused(revoke(&operators).await, Refusal::LastOperatorKey);
    revoke(&realms).await.expect("nobody misses it");
    let keys = since(&setting, CatalogVersion(0)).await.keys;
    let kept = keys.iter().find(|key| key.id == realms.id).expect("it is there");
    assert_eq!((&kept.realm, kept.revoked_at), (&realms.realm, Some(at(5))));
}

/// Event types belong to their realm, read back as they were written, and keep their birth.
pub async fn event_types_come_and_go(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    put(&setting, realm("a")).await;
    put(&setting, realm("a/b")).await;
    // Neither is the other, whatever a slash may mean.
    let (one, two) = (known_type("a", "b/c"), known_type("a/b", "c"));
    for new in [&one, &two] {
        change(&setting, CatalogChange::PutEventType(Box::new(new.clone()))).await.expect("put");
    }
    let mut all = since(&setting, CatalogVersion(0)).await.event_types;
    all.sort_by(|a, b| a.realm.cmp(&b.realm));
    assert_eq!(all, [one.clone(), two.clone()]);
    let version = since(&setting, CatalogVersion(0)).await.version;
    let again = KnownType { archived: true, created_at: at(9), updated_at: at(9), ..one.clone() };
    change(&setting, CatalogChange::PutEventType(Box::new(again.clone()))).await.expect("put");
    let gone = CatalogChange::DeleteEventType { realm: two.realm.clone(), name: two.name.clone() };
    change(&setting, gone).await.expect("deleted");
    let setting = setting.reopen(fixture).await;
    let delta = since(&setting, version).await;
    assert_eq!(delta.event_types, [KnownType { created_at: at(0), ..again }]);
    assert_eq!(delta.removed_event_types, [(two.realm, two.name)]);
    assert!(delta.tenants.is_empty(), "no plan is stale because of it");
}

/// Everything that is said of a tenant reads back, and only what is named changes.
pub async fn tenants_change_in_part(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    put(&setting, realm("r")).await;
    let metadata = |text: &str| {
        Metadata::try_from(BTreeMap::from([("note é".to_owned(), text.to_owned())])).expect("small")
    };
    let new = Tenant {
        external_id: Some(external("customer 17 / ä")),
        metadata: metadata("one"),
        labels: labels(&[("plan", "gold \u{1F4EF}")]),
        deliveries_per_second: Some(25),
        ..in_realm("r")
    };
    made(&setting, &new).await;
    assert_eq!(found(&setting, new.id).await, new);
    let edit = |realm: &str, edit: TenantChange| {
        let (tenant, realm) = (new.id, realm_name(realm));
        change(&setting, CatalogChange::ChangeTenant { tenant, realm, change: edit })
    };
    let name = format!("renamed-{}", unique());
    let renamed = TenantChange { name: Some(name.clone()), ..TenantChange::default() };
    refused(edit("default", renamed.clone()).await, Refusal::NotFound);
    edit("r", renamed).await.expect("changed");
    let renamed = Tenant { name, ..new.clone() };
    assert_eq!(found(&setting, new.id).await, renamed);
    let before = since(&setting, CatalogVersion(0)).await.version;
    edit("r", TenantChange::default()).await.expect("nothing to do");
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, before, "nothing has changed");
    let rest = TenantChange {
        name: None,
        external_id: Some(None),
        metadata: Some(metadata("two")),
        labels: Some(labels(&[("plan", "tin")])),
        deliveries_per_second: Some(None),
    };
    let version = edit("r", rest).await.expect("changed");
    let setting = setting.reopen(fixture).await;
    assert_eq!(setting.version_of(new.id).await, version);
    let rest = Tenant {
        external_id: None,
        metadata: metadata("two"),
        labels: labels(&[("plan", "tin")]),
        deliveries_per_second: None,
        ..renamed
    };
    assert_eq!(found(&setting, new.id).await, rest);
    let stranger = CatalogChange::ChangeTenant {
        tenant: TenantId::new(Timestamp::from_millis(0), 99),
        realm: RealmName::default(),
        change: TenantChange::default(),
    };
    refused(change(&setting, stranger).await, Refusal::NotFound);
}

/// Names are unique everywhere, external ids in their realm; who gives one up leaves it to others.
pub async fn names_and_external_ids_are_unique(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    put(&setting, realm("r")).await;
    let with =
        |realm: &str, id: &str| Tenant { external_id: Some(external(id)), ..in_realm(realm) };
    let (one, other, elsewhere) = (with("r", "17"), with("r", "18"), with("default", "17"));
    for tenant in [&one, &other, &elsewhere] {
        made(&setting, tenant).await;
    }
    let twin = CatalogChange::CreateTenant(with("r", "17"));
    refused(change(&setting, twin.clone()).await, Refusal::AlreadyExists);
    let edit = |edit: TenantChange| {
        let (tenant, realm) = (other.id, realm_name("r"));
        change(&setting, CatalogChange::ChangeTenant { tenant, realm, change: edit })
    };
    let same = TenantChange { external_id: Some(Some(external("17"))), ..TenantChange::default() };
    refused(edit(same.clone()).await, Refusal::AlreadyExists);
    let name = TenantChange { name: Some(elsewhere.name.clone()), ..TenantChange::default() };
    refused(edit(name).await, Refusal::AlreadyExists);
    let own = TenantChange {
        name: Some(other.name.clone()),
        external_id: Some(Some(external("18"))),
        ..TenantChange::default()
    };
    edit(own).await.expect("what it has already");
    let (tenant, realm) = (one.id, realm_name("r"));
    let give_up = TenantChange { external_id: Some(None), ..TenantChange::default() };
    change(&setting, CatalogChange::ChangeTenant { tenant, realm, change: give_up })
        .await
        .expect("changed");
    edit(same).await.expect("it is free");
    let refused_again = change(&setting, twin).await;
    refused(refused_again, Refusal::AlreadyExists);
}
