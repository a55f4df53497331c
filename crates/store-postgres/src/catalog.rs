//! The catalog: changes, and what other nodes need to know of them.
//!
//! A change holds its tenant's lock, which accepts share: it waits for those under way, and those
//! that come later read the new version. The one row of `catalog` stays locked to the commit, so
//! versions appear in the order of commits and a reader that saw one has seen all before it. For the
//! same reason nothing that a change has looked at, after it took its version, is changed by others.
//!
//! What a change comes to is decided by [`posthorn_store::entry`]; here it is written down, with what
//! other tables refer to: tenants with their versions, and which subscriptions there are.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{CatalogVersion, KeyId, Shard, TenantId, Timestamp};
use posthorn_store::entry::{Decision, Entry, Kind, Lookup, decide};
use posthorn_store::{Along, CatalogChange, CatalogDelta, Recall, Result};
use tokio_postgres::Row;

use crate::codec::{Reader, Uid, text};
use crate::failure::{Corrupt, Failure, Outcome};
use crate::session::{
    Operation, Param, Session, batch, begin, begin_snapshot, commit, execute, query,
};
use crate::{audit, sql, told};

const CHANGE: Operation = Operation::write("change_catalog", "change the catalog");
const SINCE: Operation = Operation::read("catalog_since", "read the catalog");

const TOUCH: Operation = Operation::write("touch_keys", "store the last use of keys");
const USED: Operation = Operation::read("keys_used", "read the use of keys");

pub(crate) async fn change(
    session: &Session,
    change: CatalogChange,
    along: Along,
) -> Result<CatalogVersion> {
    told::prepare(session, &along.told).await?;
    let change = Arc::new((change, along));
    session
        .run(CHANGE, move |client| {
            let change = Arc::clone(&change);
            Box::pin(async move { apply(client, &change.0, &change.1).await })
        })
        .await
}

async fn apply(client: &Object, change: &CatalogChange, along: &Along) -> Outcome<CatalogVersion> {
    begin(client).await?;
    let tenant = tenant_of(client, change).await?;
    told::hold(client, tenant, &along.told).await?;
    // Planned on the version before the change.
    audit::write(client, along).await?;
    match write(client, change).await? {
        Written::Changed(version) => {
            commit(client).await?;
            Ok(version)
        }
        Written::Nothing { present } => {
            // Without a change there is no version, nothing to tell and no line.
            batch(client, "rollback").await?;
            Ok(present)
        }
    }
}

/// What a change came to.
pub(crate) enum Written {
    /// It has this version.
    Changed(CatalogVersion),
    /// Everything was so already; the version that was taken must be given back.
    Nothing {
        /// The version as it was.
        present: CatalogVersion,
    },
}

/// Writes a change down. The caller holds the lock of its tenant. Comes last in a transaction: from here to
/// the commit no other change gets a version.
pub(crate) async fn write(client: &Object, change: &CatalogChange) -> Outcome<Written> {
    let version = next_version(client).await?;
    let next = CatalogVersion(version.unsigned_abs());
    let found = find(client, &change.lookups()).await?;
    let Some(Decision { entry, resumed }) = decide(change, &found, next)? else {
        return Ok(Written::Nothing { present: CatalogVersion(next.0 - 1) });
    };
    follow(client, change, resumed).await?;
    put(client, &entry).await?;
    if let Some(tenant) = entry.tenant {
        let params: [Param<'_>; 3] = [&Uid::from(tenant), &version, &tenant.to_string()];
        execute(client, sql::TENANT_VERSION, &params).await?;
    }
    Ok(Written::Changed(next))
}

/// The tenant a change belongs to. Whose a key is never changes, so it may be read before the lock is held.
async fn tenant_of(client: &Object, change: &CatalogChange) -> Outcome<Option<TenantId>> {
    let CatalogChange::RevokeKey { id, .. } = change else { return Ok(change.tenant()) };
    let found = find(client, &[Lookup::Key(Kind::Key, id.to_string())]).await?;
    Ok(found.first().and_then(|key| key.tenant))
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

/// What other tables have to know of a change.
async fn follow(client: &Object, change: &CatalogChange, resumed: bool) -> Outcome<()> {
    match change {
        CatalogChange::CreateTenant(new) => {
            execute(client, sql::TENANT_CREATE, &[&Uid::from(new.id)]).await?;
        }
        CatalogChange::DeleteTenant { tenant, .. } => {
            execute(client, sql::TENANT_CLOSE, &[&Uid::from(*tenant)]).await?;
        }
        CatalogChange::CreateSubscription(new) => {
            let params: [Param<'_>; 2] = [&Uid::from(new.id), &Uid::from(new.tenant)];
            execute(client, sql::SUBSCRIPTION_CREATE, &params).await?;
        }
        // Whoever goes on begins anew.
        CatalogChange::UpdateSubscription { subscription, .. } if resumed => {
            execute(client, sql::FAILING_FORGET, &[&Uid::from(subscription.id)]).await?;
        }
        CatalogChange::DeleteSubscription { id, at, .. } => {
            let shard = i16::try_from(Shard::of(*id).number()).unwrap_or(i16::MAX);
            let params: [Param<'_>; 3] = [&Uid::from(*id), &at.as_millis(), &shard];
            execute(client, sql::SUBSCRIPTION_DELETE, &params).await?;
        }
        _ => {}
    }
    Ok(())
}

/// The entries a change has to look at, as far as they are there.
async fn find(client: &Object, lookups: &[Lookup]) -> Outcome<Vec<Entry>> {
    let mut found = Vec::new();
    for lookup in lookups {
        let rows = match lookup {
            Lookup::Key(kind, key) => {
                query(client, sql::ENTRY_BY_KEY, &[&kind.as_str(), key]).await
            }
            Lookup::Unique(kind, unique) => {
                query(client, sql::ENTRY_BY_UNIQUE, &[&kind.as_str(), &text(unique)]).await
            }
            Lookup::Alias(kind, alias) => {
                query(client, sql::ENTRY_BY_ALIAS, &[&kind.as_str(), &text(alias)]).await
            }
            Lookup::InRealm(realm) => query(client, sql::ENTRY_IN_REALM, &[realm]).await,
            Lookup::OperatorKeys => query(client, sql::OPERATOR_KEYS, &[]).await,
        };
        for row in &rows? {
            found.push(entry_of(row)?);
        }
    }
    Ok(found)
}

async fn put(client: &Object, entry: &Entry) -> Outcome<()> {
    let params: [Param<'_>; 9] = [
        &entry.kind.as_str(),
        &entry.key,
        &entry.tenant.map(Uid::from),
        &raw(entry.version),
        &entry.unique.as_deref().map(text),
        &entry.removed,
        &entry.document,
        &entry.alias.as_deref().map(text),
        &entry.realm,
    ];
    execute(client, sql::ENTRY_PUT, &params).await?;
    Ok(())
}

fn entry_of(row: &Row) -> Result<Entry, Corrupt> {
    let reader = Reader::new(row, "entry", "key");
    let owned = |name| reader.get::<Option<&str>>(name).map(|text| text.map(str::to_owned));
    Ok(Entry {
        kind: Kind::parse(reader.get("kind")?)
            .ok_or_else(|| reader.corrupt("kind", "is not known"))?,
        key: owned("key")?.unwrap_or_default(),
        tenant: reader.get::<Option<Uid>>("tenant")?.map(TenantId::from),
        version: CatalogVersion(reader.number("version")?),
        unique: owned("unique_key")?,
        removed: reader.get("removed")?,
        document: owned("document")?.unwrap_or_default(),
        alias: owned("alias")?,
        realm: owned("realm")?,
    })
}

fn raw(version: CatalogVersion) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
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
    let rows = query(client, sql::CATALOG_VERSION, &[]).await?;
    let row = rows.first().ok_or_else(missing_catalog)?;
    let version = CatalogVersion(Reader::new(row, "catalog", "one").number("version")?);
    let mut delta = CatalogDelta { version, ..CatalogDelta::default() };
    for row in &query(client, sql::ENTRIES_SINCE, &[&since]).await? {
        delta.add(&entry_of(row)?)?;
    }
    if since > 0 {
        for row in &query(client, sql::SINCE_RECALLS, &[&since]).await? {
            let reader = Reader::new(row, "recall", "delivery");
            delta.recalls.push(Recall {
                subscription: reader.id("subscription")?,
                delivery: reader.id("delivery")?,
                revival: reader.small("revival")?,
            });
        }
    }
    Ok(delta)
}

pub(crate) async fn touch_keys(session: &Session, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
    let uses = Arc::new(uses);
    session
        .run(TOUCH, move |client| {
            let uses = Arc::clone(&uses);
            Box::pin(async move {
                let ids: Vec<Uid> = uses.iter().map(|(id, _)| Uid::from(*id)).collect();
                let times: Vec<i64> = uses.iter().map(|(_, at)| at.as_millis()).collect();
                let keys: Vec<String> = uses.iter().map(|(id, _)| id.to_string()).collect();
                execute(client, sql::KEYS_TOUCH, &[&ids, &times, &keys]).await?;
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
