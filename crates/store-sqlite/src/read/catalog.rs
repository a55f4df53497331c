//! Reading the catalog: entries, and what goes with them.

use posthorn_domain::{CatalogVersion, DeliveryId, KeyId, SubscriptionId, TenantId, Timestamp};
use posthorn_store::entry::{Entry, Kind, Lookup};
use posthorn_store::{CatalogDelta, Recall};
use rusqlite::{Connection, Params, Row};

use crate::codec::{Columns, int};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Everything that changed after `since`, as of one snapshot.
pub(crate) fn since(conn: &Connection, since: CatalogVersion) -> Result<CatalogDelta, Failure> {
    let mut delta = CatalogDelta::default();
    let version: i64 = conn.query_row("select catalog_version from store", [], |row| row.get(0))?;
    delta.version = CatalogVersion(version.unsigned_abs());
    let since = int(since.0);
    each(conn, sql::ENTRIES_SINCE, [since], |row| Ok(delta.add(&entry(row)?)?))?;
    if since > 0 {
        each(conn, sql::RECALLS_SINCE, [since], |row| {
            let columns = Columns::of(row, "recall", 0);
            delta.recalls.push(Recall {
                subscription: SubscriptionId::from_bytes(columns.array(1)?),
                delivery: DeliveryId::from_bytes(columns.array(2)?),
                revival: columns.number(3)?,
            });
            Ok(())
        })?;
    }
    Ok(delta)
}

/// The entries a change has to look at, as far as they are there.
pub(crate) fn find(conn: &Connection, lookups: &[Lookup]) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    let mut keep = |row: &Row<'_>| {
        found.push(entry(row)?);
        Ok(())
    };
    for lookup in lookups {
        match lookup {
            Lookup::Key(kind, key) => {
                each(conn, sql::ENTRY_BY_KEY, [kind.as_str(), key], &mut keep)?;
            }
            Lookup::Unique(kind, text) => {
                each(conn, sql::ENTRY_BY_UNIQUE, [kind.as_str(), text], &mut keep)?;
            }
            Lookup::Alias(kind, text) => {
                each(conn, sql::ENTRY_BY_ALIAS, [kind.as_str(), text], &mut keep)?;
            }
            Lookup::InRealm(realm) => each(conn, sql::ENTRY_IN_REALM, [realm], &mut keep)?,
            Lookup::OperatorKeys => each(conn, sql::OPERATOR_KEYS, [], &mut keep)?,
        }
    }
    Ok(found)
}

fn entry(row: &Row<'_>) -> Result<Entry, Corrupt> {
    let columns = Columns::of(row, "entry", 1);
    Ok(Entry {
        kind: Kind::parse(columns.text(0)?)
            .ok_or_else(|| columns.corrupt("the kind is not known"))?,
        key: columns.text(1)?.to_owned(),
        tenant: columns.maybe_array(2)?.map(TenantId::from_bytes),
        version: CatalogVersion(columns.number(3)?),
        unique: columns.maybe_text(4)?.map(str::to_owned),
        removed: columns.int(5)? != 0,
        document: columns.text(6)?.to_owned(),
        alias: columns.maybe_text(7)?.map(str::to_owned),
        realm: columns.maybe_text(8)?.map(str::to_owned),
    })
}

/// When each key was last used.
pub(crate) fn keys_used(conn: &Connection) -> Result<Vec<(KeyId, Timestamp)>, Failure> {
    let mut uses = Vec::new();
    each(conn, "select key, used_at from key_use", [], |row| {
        let columns = Columns::of(row, "key_use", 0);
        uses.push((KeyId::from_bytes(columns.array(0)?), columns.time(1)?));
        Ok(())
    })?;
    Ok(uses)
}

fn each(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    mut visit: impl FnMut(&Row<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    while let Some(row) = rows.next()? {
        visit(row)?;
    }
    Ok(())
}
