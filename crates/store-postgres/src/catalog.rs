//! The catalog: changes, and what other nodes need to know of them.
//!
//! A change holds its tenant's lock, which accepts share: it waits for those under way, and those
//! that come later read the new version. The one row of `catalog` stays locked to the commit, so
//! versions appear in the order of commits and a reader that saw one has seen all before it.

use std::sync::Arc;

use bytes::Bytes;
use deadpool_postgres::Object;
use posthorn_domain::{
    ApiKey, CatalogVersion, KeyId, ProfileName, SealedSecret, SecretName, Shard, Subscription,
    SubscriptionName, Tenant, TenantId, Timestamp, Topic, TopicName,
};
use posthorn_store::{CatalogChange, CatalogDelta, Refusal, Result, TenantEntry};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use crate::codec::{Reader, Uid, json, text};
use crate::failure::{Corrupt, Failure, Outcome};
use crate::session::{Operation, Session, begin, begin_snapshot, commit, execute, query};
use crate::{certificates, lock, profiles, sql};

const CHANGE: Operation = Operation::write("change_catalog", "change the catalog");
const SINCE: Operation = Operation::read("catalog_since", "read the catalog");

const TOUCH: Operation = Operation::write("touch_keys", "write down the use of keys");
const USED: Operation = Operation::read("keys_used", "read the use of keys");

/// A sealed secret as JSON.
#[derive(Serialize, Deserialize)]
struct StoredSecret {
    name: SecretName,
    sealed: Bytes,
    created_at: i64,
    expires_at: Option<i64>,
}

fn secrets_json(secrets: &[SealedSecret]) -> String {
    let stored: Vec<StoredSecret> = secrets
        .iter()
        .map(|secret| StoredSecret {
            name: secret.name.clone(),
            sealed: secret.sealed.clone(),
            created_at: secret.created_at.as_millis(),
            expires_at: secret.expires_at.map(Timestamp::as_millis),
        })
        .collect();
    json(&stored)
}

fn secrets_of(reader: &Reader<'_>) -> Result<Vec<SealedSecret>, Corrupt> {
    let stored: Vec<StoredSecret> = reader.json("secrets")?;
    let secret = |secret: StoredSecret| SealedSecret {
        name: secret.name,
        sealed: secret.sealed,
        created_at: Timestamp::from_millis(secret.created_at),
        expires_at: secret.expires_at.map(Timestamp::from_millis),
    };
    Ok(stored.into_iter().map(secret).collect())
}

pub(crate) async fn change(session: &Session, change: CatalogChange) -> Result<CatalogVersion> {
    let change = Arc::new(change);
    session
        .run(CHANGE, move |client| {
            let change = Arc::clone(&change);
            Box::pin(async move {
                begin(client).await?;
                let version = apply(client, &change).await?;
                commit(client).await?;
                Ok(version)
            })
        })
        .await
}

pub(crate) fn raw(version: CatalogVersion) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

/// Takes the lock of the tenant a change belongs to, and makes sure that there is one.
pub(crate) async fn enter(client: &Object, tenant: TenantId) -> Outcome<()> {
    lock::hold(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
    Ok(())
}

pub(crate) async fn known(client: &Object, tenant: TenantId) -> Outcome<()> {
    match query(client, sql::TENANT_EXISTS, &[&Uid::from(tenant)]).await?.is_empty() {
        true => Err(Refusal::NotFound.into()),
        false => Ok(()),
    }
}

/// The version of this change. From here to the commit no other change gets one.
pub(crate) async fn next_version(client: &Object) -> Outcome<i64> {
    let rows = query(client, sql::CATALOG_BUMP, &[]).await?;
    match rows.first() {
        Some(row) => Ok(row.try_get(0)?),
        None => Err(missing_catalog()),
    }
}

fn missing_catalog() -> Failure {
    Corrupt { table: "catalog", id: "the only one".to_owned(), problem: "missing".to_owned() }
        .into()
}

pub(crate) fn refuse_unless(changed: u64, refusal: Refusal) -> Outcome<()> {
    if changed == 0 { Err(refusal.into()) } else { Ok(()) }
}

async fn apply(client: &Object, change: &CatalogChange) -> Outcome<CatalogVersion> {
    let (tenant, version) = match change {
        CatalogChange::CreateTenant(tenant) => {
            (Some(tenant.id), create_tenant(client, tenant).await?)
        }
        CatalogChange::CreateTopic(topic) => {
            (Some(topic.tenant), write_topic(client, topic, sql::TOPIC_CREATE).await?)
        }
        CatalogChange::PutTopic(topic) => {
            (Some(topic.tenant), write_topic(client, topic, sql::TOPIC_PUT).await?)
        }
        CatalogChange::DeleteTopic { tenant, name } => {
            enter(client, *tenant).await?;
            let version = next_version(client).await?;
            let key: (Uid, &str) = (Uid::from(*tenant), name.as_str());
            let changed = execute(client, sql::TOPIC_REMOVE, &[&key.0, &key.1, &version]).await?;
            refuse_unless(changed, Refusal::NotFound)?;
            (Some(*tenant), version)
        }
        CatalogChange::CreateSubscription(subscription) => {
            (Some(subscription.tenant), create_subscription(client, subscription).await?)
        }
        CatalogChange::UpdateSubscription { subscription, expected } => {
            (Some(subscription.tenant), update_subscription(client, subscription, *expected).await?)
        }
        CatalogChange::DeleteSubscription { tenant, id, at } => {
            enter(client, *tenant).await?;
            let version = next_version(client).await?;
            let shard = i16::try_from(Shard::of(*id).number()).unwrap_or(i16::MAX);
            let (owner, uid) = (Uid::from(*tenant), Uid::from(*id));
            let changed = execute(
                client,
                sql::SUBSCRIPTION_DELETE,
                &[&owner, &uid, &at.as_millis(), &version, &shard],
            )
            .await?;
            refuse_unless(changed, Refusal::NotFound)?;
            (Some(*tenant), version)
        }
        CatalogChange::PutProfile(profile) => {
            (Some(profile.tenant), profiles::put(client, profile).await?)
        }
        CatalogChange::DeleteProfile { tenant, name } => {
            (Some(*tenant), profiles::remove(client, *tenant, name).await?)
        }
        CatalogChange::CreateKey(key) => (key.tenant, create_key(client, key).await?),
        CatalogChange::RevokeKey { id, at } => {
            let rows = query(client, sql::KEY_FIND, &[&Uid::from(*id)]).await?;
            let row = rows.first().ok_or(Refusal::NotFound)?;
            if row.try_get::<_, Option<i64>>("revoked_at")?.is_some() {
                return current(client).await;
            }
            let tenant = row.try_get::<_, Option<Uid>>("tenant")?.map(TenantId::from);
            if let Some(tenant) = tenant {
                enter(client, tenant).await?;
            }
            let version = next_version(client).await?;
            let uid = Uid::from(*id);
            execute(client, sql::KEY_REVOKE, &[&uid, &at.as_millis(), &version]).await?;
            (tenant, version)
        }
        CatalogChange::CreateCertificate(new) => {
            (Some(new.tenant), certificates::create(client, new).await?)
        }
        CatalogChange::UpdateCertificate { certificate: new, expected } => {
            (Some(new.tenant), certificates::update(client, new, *expected).await?)
        }
        CatalogChange::RevokeCertificate { tenant, id, at } => {
            match certificates::revoke(client, *tenant, *id, *at).await? {
                Some(version) => (Some(*tenant), version),
                None => return current(client).await,
            }
        }
        CatalogChange::DeleteCertificate { tenant, id } => {
            (Some(*tenant), certificates::remove(client, *tenant, *id).await?)
        }
    };
    if let Some(tenant) = tenant {
        execute(client, sql::TENANT_VERSION, &[&Uid::from(tenant), &version]).await?;
    }
    Ok(CatalogVersion(u64::try_from(version).unwrap_or(0)))
}

async fn create_tenant(client: &Object, tenant: &Tenant) -> Outcome<i64> {
    enter(client, tenant.id).await?;
    let version = next_version(client).await?;
    let (id, name) = (Uid::from(tenant.id), text(&tenant.name));
    let created = tenant.created_at.as_millis();
    let changed = execute(client, sql::TENANT_CREATE, &[&id, &name, &created, &version]).await?;
    refuse_unless(changed, Refusal::AlreadyExists)?;
    Ok(version)
}

async fn write_topic(client: &Object, topic: &Topic, statement: &'static str) -> Outcome<i64> {
    enter(client, topic.tenant).await?;
    known(client, topic.tenant).await?;
    let version = next_version(client).await?;
    let changed = execute(
        client,
        statement,
        &[
            &Uid::from(topic.tenant),
            &topic.name.as_str(),
            &text(&topic.description),
            &json(&topic.attributes),
            &topic.created_at.as_millis(),
            &version,
            &json(&topic.labels),
        ],
    )
    .await?;
    if changed == 0 {
        return Err(Refusal::AlreadyExists.into());
    }
    Ok(version)
}

async fn create_subscription(client: &Object, new: &Subscription) -> Outcome<i64> {
    enter(client, new.tenant).await?;
    known(client, new.tenant).await?;
    let version = next_version(client).await?;
    free_name(client, new).await?;
    let changed = execute(
        client,
        sql::SUBSCRIPTION_CREATE,
        &[
            &Uid::from(new.id),
            &Uid::from(new.tenant),
            &text(&new.description),
            &json(&new.destination),
            &json(&new.filter),
            &new.profile.as_str(),
            &json(&new.overrides),
            &secrets_json(&new.secrets),
            &json(&new.status),
            &new.created_at.as_millis(),
            &new.updated_at.as_millis(),
            &version,
            &new.name.as_ref().map(SubscriptionName::as_str),
            &json(&new.labels),
            &json(&new.stops),
        ],
    )
    .await?;
    refuse_unless(changed, Refusal::AlreadyExists)?;
    Ok(version)
}

async fn update_subscription(
    client: &Object,
    new: &Subscription,
    expected: Option<CatalogVersion>,
) -> Outcome<i64> {
    enter(client, new.tenant).await?;
    let (tenant, id) = (Uid::from(new.tenant), Uid::from(new.id));
    let rows = query(client, sql::SUBSCRIPTION_VERSION, &[&tenant, &id]).await?;
    let row = rows.first().ok_or(Refusal::NotFound)?;
    let current = CatalogVersion(Reader::new(row, "subscription", "id").number("version")?);
    if expected.is_some_and(|expected| expected != current) {
        return Err(Refusal::VersionMismatch { current }.into());
    }
    let version = next_version(client).await?;
    free_name(client, new).await?;
    if new.status.is_active() {
        execute(client, sql::FAILING_FORGET, &[&id]).await?;
    }
    execute(
        client,
        sql::SUBSCRIPTION_UPDATE,
        &[
            &tenant,
            &id,
            &text(&new.description),
            &json(&new.destination),
            &json(&new.filter),
            &new.profile.as_str(),
            &json(&new.overrides),
            &secrets_json(&new.secrets),
            &json(&new.status),
            &new.updated_at.as_millis(),
            &version,
            &new.name.as_ref().map(SubscriptionName::as_str),
            &json(&new.labels),
            &json(&new.stops),
        ],
    )
    .await?;
    Ok(version)
}

/// Whether no other subscription of the tenant has the name. The version is taken, so no other
/// change can give the name away before the commit.
async fn free_name(client: &Object, new: &Subscription) -> Outcome<()> {
    let Some(name) = &new.name else { return Ok(()) };
    let (tenant, id) = (Uid::from(new.tenant), Uid::from(new.id));
    let same = query(client, sql::SUBSCRIPTION_NAME_TAKEN, &[&tenant, &name.as_str(), &id]).await?;
    if same.is_empty() { Ok(()) } else { Err(Refusal::AlreadyExists.into()) }
}

async fn create_key(client: &Object, key: &ApiKey) -> Outcome<i64> {
    if let Some(tenant) = key.tenant {
        enter(client, tenant).await?;
        known(client, tenant).await?;
    }
    let version = next_version(client).await?;
    let changed = execute(
        client,
        sql::KEY_CREATE,
        &[
            &Uid::from(key.id),
            &key.tenant.map(Uid::from),
            &text(&key.description),
            &json(&key.scopes),
            &&key.hash[..],
            &key.created_at.as_millis(),
            &key.expires_at.map(Timestamp::as_millis),
            &key.revoked_at.map(Timestamp::as_millis),
            &version,
            &key.rate_limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)),
        ],
    )
    .await?;
    refuse_unless(changed, Refusal::AlreadyExists)?;
    Ok(version)
}

async fn current(client: &Object) -> Outcome<CatalogVersion> {
    let rows = query(client, sql::CATALOG_VERSION, &[]).await?;
    let row = rows.first().ok_or_else(missing_catalog)?;
    Ok(CatalogVersion(Reader::new(row, "catalog", "one").number("version")?))
}

pub(crate) async fn since(session: &Session, since: CatalogVersion) -> Result<CatalogDelta> {
    session
        .run(SINCE, move |client| {
            Box::pin(async move {
                begin_snapshot(client).await?;
                let delta = read(client, raw(since)).await?;
                commit(client).await?;
                Ok(delta)
            })
        })
        .await
}

async fn read(client: &Object, since: i64) -> Outcome<CatalogDelta> {
    let mut delta = CatalogDelta { version: current(client).await?, ..CatalogDelta::default() };
    for row in &query(client, sql::SINCE_TENANTS, &[&since]).await? {
        delta.tenants.push(tenant_of(row)?);
    }
    for row in &query(client, sql::SINCE_TOPICS, &[&since]).await? {
        let reader = Reader::new(row, "topic", "tenant");
        let name = reader.name("name", TopicName::new)?;
        if reader.get("removed")? {
            delta.removed_topics.push((reader.id("tenant")?, name));
        } else {
            delta.topics.push(Topic {
                tenant: reader.id("tenant")?,
                name,
                description: reader.get::<&str>("description")?.to_owned(),
                attributes: reader.json("attributes")?,
                labels: reader.json("labels")?,
                created_at: reader.time("created_at")?,
            });
        }
    }
    for row in &query(client, sql::SINCE_SUBSCRIPTIONS, &[&since]).await? {
        let reader = Reader::new(row, "subscription", "id");
        if reader.time_maybe("deleted_at")?.is_some() {
            delta.removed_subscriptions.push((reader.id("tenant")?, reader.id("id")?));
        } else {
            delta.subscriptions.push(subscription_of(&reader)?);
        }
    }
    for row in &query(client, sql::SINCE_KEYS, &[&since]).await? {
        delta.keys.push(key_of(row)?);
    }
    profiles::read(client, since, &mut delta).await?;
    certificates::read(client, since, &mut delta).await?;
    Ok(delta)
}

pub(crate) async fn touch_keys(session: &Session, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
    let keys: Arc<Vec<Uid>> = Arc::new(uses.iter().map(|(id, _)| Uid::from(*id)).collect());
    let times: Arc<Vec<i64>> = Arc::new(uses.iter().map(|(_, at)| at.as_millis()).collect());
    session
        .run(TOUCH, move |client| {
            let (keys, times) = (Arc::clone(&keys), Arc::clone(&times));
            Box::pin(async move {
                execute(client, sql::KEYS_TOUCH, &[&*keys, &*times]).await?;
                Ok(())
            })
        })
        .await
}

pub(crate) async fn keys_used(session: &Session) -> Result<Vec<(KeyId, Timestamp)>> {
    session
        .run(USED, move |client| {
            Box::pin(async move {
                let mut uses = Vec::new();
                for row in &query(client, sql::KEYS_USED, &[]).await? {
                    let reader = Reader::new(row, "key_use", "key");
                    uses.push((reader.id("key")?, reader.time("used_at")?));
                }
                Ok(uses)
            })
        })
        .await
}

fn tenant_of(row: &Row) -> Result<TenantEntry, Corrupt> {
    let reader = Reader::new(row, "tenant", "id");
    let tenant = Tenant {
        id: reader.id("id")?,
        name: reader.get::<&str>("name")?.to_owned(),
        created_at: reader.time("created_at")?,
    };
    Ok(TenantEntry { tenant, version: CatalogVersion(reader.number("version")?) })
}

fn subscription_of(reader: &Reader<'_>) -> Result<Subscription, Corrupt> {
    Ok(Subscription {
        id: reader.id("id")?,
        tenant: reader.id("tenant")?,
        name: reader
            .get::<Option<&str>>("name")?
            .map(|text| SubscriptionName::new(text).map_err(|error| reader.corrupt("name", error)))
            .transpose()?,
        description: reader.get::<&str>("description")?.to_owned(),
        labels: reader.json("labels")?,
        destination: reader.json("destination")?,
        filter: reader.json("filter")?,
        profile: reader.name("profile", ProfileName::new)?,
        overrides: reader.json("overrides")?,
        secrets: secrets_of(reader)?,
        status: reader.json("status")?,
        stops: reader.json("stops")?,
        created_at: reader.time("created_at")?,
        updated_at: reader.time("updated_at")?,
        version: CatalogVersion(reader.number("version")?),
    })
}

fn key_of(row: &Row) -> Result<ApiKey, Corrupt> {
    let reader = Reader::new(row, "api_key", "id");
    let hash: &[u8] = reader.get("hash")?;
    Ok(ApiKey {
        id: reader.id("id")?,
        tenant: reader.get::<Option<Uid>>("tenant")?.map(TenantId::from),
        description: reader.get::<&str>("description")?.to_owned(),
        scopes: reader.json("scopes")?,
        hash: hash.try_into().map_err(|error| reader.corrupt("hash", error))?,
        created_at: reader.time("created_at")?,
        expires_at: reader.time_maybe("expires_at")?,
        revoked_at: reader.time_maybe("revoked_at")?,
        rate_limit: reader
            .get::<Option<i32>>("rate_limit")?
            .map(|limit| u32::try_from(limit).map_err(|error| reader.corrupt("rate_limit", error)))
            .transpose()?,
    })
}
