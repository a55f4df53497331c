//! Reading the catalog.

use std::collections::HashMap;

use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, CertificateId, CertificateKind, KeyId, SealedSecret,
    Subscription, SubscriptionId, SubscriptionName, Tenant, TenantId, TenantProfile, Thumbprint,
    Timestamp, Topic,
};
use posthorn_store::{CatalogDelta, TenantEntry};
use rusqlite::{Connection, Row};

use crate::codec::{Columns, int};
use crate::error::{Corrupt, Failure};

/// Everything that changed after `since`, as of one snapshot.
pub(crate) fn since(conn: &Connection, since: CatalogVersion) -> Result<CatalogDelta, Failure> {
    let mut delta = CatalogDelta::default();
    let version: i64 = conn.query_row("select catalog_version from store", [], |row| row.get(0))?;
    delta.version = CatalogVersion(version.unsigned_abs());
    let since = int(since.0);
    each(conn, "select no, id, name, created_at, version from tenant", since, |row| {
        let columns = Columns::of(row, "tenant", 0);
        let tenant = Tenant {
            id: TenantId::from_bytes(columns.array(1)?),
            name: columns.text(2)?.to_owned(),
            created_at: columns.time(3)?,
        };
        let version = CatalogVersion(columns.number(4)?);
        delta.tenants.push(TenantEntry { tenant, version });
        Ok(())
    })?;
    let topics = "select o.name, t.id, o.description, o.attributes, o.created_at, o.deleted, o.labels \
                  from topic o join tenant t on t.no = o.tenant";
    each(conn, topics, since, |row| {
        let columns = Columns::of(row, "topic", 0);
        let (tenant, name) = (TenantId::from_bytes(columns.array(1)?), columns.parsed(0)?);
        if columns.int(5)? != 0 {
            delta.removed_topics.push((tenant, name));
            return Ok(());
        }
        delta.topics.push(Topic {
            tenant,
            name,
            description: columns.text(2)?.to_owned(),
            attributes: columns.json(3)?,
            labels: columns.json(6)?,
            created_at: columns.time(4)?,
        });
        Ok(())
    })?;
    subscriptions(conn, since, &mut delta)?;
    profiles(conn, since, &mut delta)?;
    let keys = "select o.id, t.id, o.description, o.scopes, o.hash, o.created_at, o.expires_at, \
                o.revoked_at, o.rate_limit from api_key o left join tenant t on t.no = o.tenant";
    each(conn, keys, since, |row| {
        let columns = Columns::of(row, "api_key", 0);
        delta.keys.push(ApiKey {
            id: KeyId::from_bytes(columns.array(0)?),
            tenant: columns.maybe_array(1)?.map(TenantId::from_bytes),
            description: columns.text(2)?.to_owned(),
            scopes: columns.json(3)?,
            hash: columns.array(4)?,
            created_at: columns.time(5)?,
            expires_at: columns.maybe_time(6)?,
            revoked_at: columns.maybe_time(7)?,
            rate_limit: columns
                .maybe_int(8)?
                .map(|limit| u32::try_from(limit).map_err(|_| columns.corrupt("not a rate")))
                .transpose()?,
        });
        Ok(())
    })?;
    certificates(conn, since, &mut delta)?;
    Ok(delta)
}

fn profiles(conn: &Connection, since: i64, delta: &mut CatalogDelta) -> Result<(), Failure> {
    let sql = "select t.id, o.name, o.base, o.policy, o.updated_at, o.deleted \
               from profile o join tenant t on t.no = o.tenant";
    each(conn, sql, since, |row| {
        let columns = Columns::of(row, "profile", 0);
        let (tenant, name) = (TenantId::from_bytes(columns.array(0)?), columns.parsed(1)?);
        if columns.int(5)? != 0 {
            delta.removed_profiles.push((tenant, name));
            return Ok(());
        }
        delta.profiles.push(TenantProfile {
            tenant,
            name,
            base: columns.parsed(2)?,
            policy: columns.json(3)?,
            updated_at: columns.time(4)?,
        });
        Ok(())
    })
}

fn certificates(conn: &Connection, since: i64, delta: &mut CatalogDelta) -> Result<(), Failure> {
    let sql = "select o.id, t.id, o.kind, o.description, o.owner, o.host, o.scopes, o.thumbprint, \
               o.subject, o.pem, o.sealed_key, o.not_before, o.not_after, o.created_at, \
               o.updated_at, o.revoked_at, o.version, o.deleted \
               from certificate o join tenant t on t.no = o.tenant";
    each(conn, sql, since, |row| {
        let columns = Columns::of(row, "certificate", 0);
        let id = CertificateId::from_bytes(columns.array(0)?);
        let tenant = TenantId::from_bytes(columns.array(1)?);
        if columns.int(17)? != 0 {
            delta.removed_certificates.push((tenant, id));
            return Ok(());
        }
        let text = |at| columns.text(at).map(str::to_owned);
        delta.certificates.push(Certificate {
            id,
            tenant,
            kind: CertificateKind::parse(columns.text(2)?)
                .ok_or_else(|| columns.corrupt("the kind is not known"))?,
            description: text(3)?,
            owner: text(4)?,
            host: text(5)?,
            scopes: columns.json(6)?,
            thumbprint: Thumbprint(columns.array(7)?),
            subject: text(8)?,
            pem: text(9)?,
            sealed_key: columns.maybe_bytes(10)?,
            not_before: columns.time(11)?,
            not_after: columns.time(12)?,
            created_at: columns.time(13)?,
            updated_at: columns.time(14)?,
            revoked_at: columns.maybe_time(15)?,
            version: CatalogVersion(columns.number(16)?),
        });
        Ok(())
    })
}

/// When each key was last used.
pub(crate) fn keys_used(conn: &Connection) -> Result<Vec<(KeyId, Timestamp)>, Failure> {
    let mut statement = conn.prepare_cached("select key, used_at from key_use")?;
    let mut rows = statement.query([])?;
    let mut uses = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "key_use", 0);
        uses.push((KeyId::from_bytes(columns.array(0)?), columns.time(1)?));
    }
    Ok(uses)
}

fn subscriptions(conn: &Connection, since: i64, delta: &mut CatalogDelta) -> Result<(), Failure> {
    let mut secrets: HashMap<i64, Vec<SealedSecret>> = HashMap::new();
    let sql = "select s.subscription, s.name, s.sealed, s.created_at, s.expires_at \
               from subscription o join subscription_secret s on s.subscription = o.no";
    let by_position = " order by s.subscription, s.position";
    each_ordered(conn, sql, by_position, since, |row| {
        let columns = Columns::of(row, "subscription_secret", 0);
        secrets.entry(columns.int(0)?).or_default().push(SealedSecret {
            name: columns.parsed(1)?,
            sealed: columns.bytes(2)?,
            created_at: columns.time(3)?,
            expires_at: columns.maybe_time(4)?,
        });
        Ok(())
    })?;
    let sql = "select o.no, o.id, t.id, o.description, o.destination, o.filter, o.profile, \
               o.overrides, o.status, o.created_at, o.updated_at, o.version, o.deleted_at, \
               o.name, o.labels, o.stops from subscription o join tenant t on t.no = o.tenant";
    each(conn, sql, since, |row| {
        let columns = Columns::of(row, "subscription", 0);
        let id = SubscriptionId::from_bytes(columns.array(1)?);
        let tenant = TenantId::from_bytes(columns.array(2)?);
        if columns.maybe_int(12)?.is_some() {
            delta.removed_subscriptions.push((tenant, id));
            return Ok(());
        }
        delta.subscriptions.push(Subscription {
            id,
            tenant,
            name: columns
                .maybe_text(13)?
                .map(|text| SubscriptionName::new(text).map_err(|e| columns.corrupt(e)))
                .transpose()?,
            description: columns.text(3)?.to_owned(),
            labels: columns.json(14)?,
            destination: columns.json(4)?,
            filter: columns.json(5)?,
            profile: columns.parsed(6)?,
            overrides: columns.json(7)?,
            secrets: secrets.remove(&columns.int(0)?).unwrap_or_default(),
            status: columns.json(8)?,
            stops: columns.json(15)?,
            created_at: columns.time(9)?,
            updated_at: columns.time(10)?,
            version: CatalogVersion(columns.number(11)?),
        });
        Ok(())
    })
}

fn each(
    conn: &Connection,
    select: &str,
    since: i64,
    visit: impl FnMut(&Row<'_>) -> Result<(), Corrupt>,
) -> Result<(), Failure> {
    each_ordered(conn, select, "", since, visit)
}

/// Visits every row that changed after `since`; the changing table is `o`, or the only one.
fn each_ordered(
    conn: &Connection,
    select: &str,
    order: &str,
    since: i64,
    mut visit: impl FnMut(&Row<'_>) -> Result<(), Corrupt>,
) -> Result<(), Failure> {
    let version = if select.contains(" o ") { "o.version" } else { "version" };
    let mut statement = conn.prepare_cached(&format!("{select} where {version} > ?1{order}"))?;
    let mut rows = statement.query([since])?;
    while let Some(row) = rows.next()? {
        visit(row)?;
    }
    Ok(())
}
