//! Changes of the catalog. What one comes to is decided by [`posthorn_store::entry`]; here it is written
//! down, with the small numbers by which other tables know tenants and subscriptions.

use posthorn_domain::{CatalogVersion, KeyId, Shard, TenantId, Timestamp};
use posthorn_store::entry::{Decision, Entry, Kind, decide};
use posthorn_store::{Along, CatalogChange, Refusal};
use rusqlite::{Connection, params};

use super::audit;
use crate::cache::{KnownSubscription, KnownTenant};
use crate::codec::{int, subscription_no};
use crate::error::Failure;
use crate::read;
use crate::sql;
use crate::writer::Writer;

/// Applies one change, with what goes along with it; the new version.
pub(crate) fn change(
    writer: &mut Writer,
    change: &CatalogChange,
    along: &Along,
) -> Result<CatalogVersion, Failure> {
    audit::check(&writer.cache, along)?;
    let next = CatalogVersion(writer.cache.version.0 + 1);
    let found = read::catalog::find(&writer.conn, &change.lookups())?;
    let Some(Decision { entry, resumed }) = decide(change, &found, next)? else {
        return Ok(writer.cache.version);
    };
    // Planned on the version before the change.
    audit::write(writer, along)?;
    follow(writer, change, resumed)?;
    put(&writer.conn, &entry)?;
    writer.conn.execute("update store set catalog_version = ?1", [int(next.0)])?;
    writer.cache.version = next;
    if let Some(tenant) = entry.tenant {
        move_on(writer, tenant, next)?;
    }
    Ok(next)
}

/// What other tables have to know of a change.
fn follow(writer: &mut Writer, change: &CatalogChange, resumed: bool) -> Result<(), Failure> {
    let Writer { conn, cache, .. } = writer;
    match change {
        CatalogChange::CreateTenant(new) => {
            conn.execute("insert into tenant (id) values (?1)", [new.id.as_bytes().as_slice()])?;
            let (no, version) = (conn.last_insert_rowid(), CatalogVersion(0));
            cache.tenants.insert(new.id, KnownTenant { no, version, closed: false });
        }
        CatalogChange::DeleteTenant { tenant, .. } => {
            let known = cache.tenants.get_mut(tenant).ok_or(Refusal::NotFound)?;
            conn.execute("update tenant set closed = 1 where no = ?1", [known.no])?;
            known.closed = true;
        }
        CatalogChange::CreateSubscription(new) => {
            let tenant = cache.tenants.get(&new.tenant).ok_or(Refusal::NotFound)?.no;
            let no = subscription_no(cache.greatest_subscription, Shard::of(new.id));
            conn.execute(
                "insert into subscription (no, id, tenant) values (?1, ?2, ?3)",
                params![no, new.id.as_bytes().as_slice(), tenant],
            )?;
            cache.greatest_subscription = no;
            cache.subscriptions.insert(new.id, KnownSubscription { no, tenant });
        }
        // Whoever goes on begins anew.
        CatalogChange::UpdateSubscription { subscription, .. } if resumed => {
            let known = cache.subscriptions.get(&subscription.id).ok_or(Refusal::NotFound)?;
            conn.execute(sql::FAILING_END, [known.no])?;
        }
        CatalogChange::DeleteSubscription { id, at, .. } => {
            let known = cache.subscriptions.remove(id).ok_or(Refusal::NotFound)?;
            conn.execute(
                "update subscription set deleted_at = ?2 where no = ?1",
                params![known.no, at.as_millis()],
            )?;
            conn.execute(sql::FAILING_END, [known.no])?;
            cache.unswept.insert(known.no);
        }
        _ => {}
    }
    Ok(())
}

fn put(conn: &Connection, entry: &Entry) -> Result<(), Failure> {
    conn.prepare_cached(sql::ENTRY_PUT)?.execute(params![
        entry.kind.as_str(),
        entry.key,
        entry.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()),
        int(entry.version.0),
        entry.unique,
        entry.removed,
        entry.document,
        entry.alias,
        entry.realm,
    ])?;
    Ok(())
}

/// From now on plans for the tenant's events must be made on this version.
fn move_on(writer: &mut Writer, tenant: TenantId, next: CatalogVersion) -> Result<(), Failure> {
    let values = params![int(next.0), Kind::Tenant.as_str(), tenant.to_string()];
    writer.conn.execute("update entry set version = ?1 where kind = ?2 and key = ?3", values)?;
    if let Some(known) = writer.cache.tenants.get_mut(&tenant) {
        known.version = next;
    }
    Ok(())
}

/// Writes down when keys were last used.
pub(crate) fn touch_keys(writer: &Writer, uses: &[(KeyId, Timestamp)]) -> Result<(), Failure> {
    // The `where` keeps sqlite from reading `on` as part of a join.
    let mut statement = writer.conn.prepare_cached(
        "insert into key_use (key, used_at) select ?1, ?2 from entry where kind = ?3 and key = ?4 \
         on conflict do update set used_at = max(used_at, excluded.used_at)",
    )?;
    for (id, at) in uses {
        let (bytes, key) = (id.as_bytes().as_slice(), id.to_string());
        statement.execute(params![bytes, at.as_millis(), Kind::Key.as_str(), key])?;
    }
    Ok(())
}
