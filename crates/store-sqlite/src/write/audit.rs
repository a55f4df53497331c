//! What goes along with a change: operational events, and the line of the audit log.
//!
//! Whoever makes a change asks first whether all of it may go along ([`check`]), before anything is written, and has it
//! written when there was a change ([`write`]).

use posthorn_domain::{AuditEntry, AuditId, TenantId, Timestamp};
use posthorn_store::{Along, Refusal};
use rusqlite::{Connection, params};

use super::told;
use crate::cache::Cache;
use crate::codec::{int, json};
use crate::error::Failure;
use crate::sql;
use crate::writer::{Weight, Writer};

/// How much work it is.
pub(crate) fn weight(along: &Along) -> Weight {
    let told = told::weight(&along.told);
    Weight { rows: told.rows + usize::from(along.audit.is_some()), ..told }
}

/// Refuses plans that are not of the present.
pub(crate) fn check(cache: &Cache, along: &Along) -> Result<(), Failure> {
    if told::is_stale(cache, &along.told) { Err(Refusal::Stale.into()) } else { Ok(()) }
}

/// Writes all that goes along with a change; the plans are of the present.
pub(crate) fn write(writer: &mut Writer, along: &Along) -> Result<(), Failure> {
    if let Some(entry) = &along.audit {
        put(&writer.conn, entry)?;
    }
    told::tell(writer, &along.told)
}

/// Writes what goes along with no change.
pub(crate) fn note(writer: &mut Writer, along: &Along) -> Result<(), Failure> {
    check(&writer.cache, along)?;
    write(writer, along)
}

fn put(conn: &Connection, entry: &AuditEntry) -> Result<(), Failure> {
    conn.prepare_cached(sql::AUDIT_PUT)?.execute(params![
        entry.id.as_bytes().as_slice(),
        entry.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()),
        entry.realm.as_ref().map(|realm| realm.as_str()),
        entry.actor.id,
        entry.action.as_str(),
        entry.action.noun(),
        entry.object.id,
        json(entry),
    ])?;
    Ok(())
}

/// Removes lines that were written before a time; how many.
pub(crate) fn prune(conn: &Connection, before: Timestamp, limit: usize) -> Result<usize, Failure> {
    let before = AuditId::floor(before);
    let values = params![before.as_bytes().as_slice(), int(limit as u64)];
    Ok(conn.prepare_cached(sql::PRUNE_AUDIT)?.execute(values)?)
}

/// Removes lines of a tenant but the one that outlives it; how many.
pub(crate) fn forget(conn: &Connection, tenant: TenantId, limit: usize) -> Result<usize, Failure> {
    let outlives = posthorn_domain::AuditAction::TenantDeleted.as_str();
    let values = params![tenant.as_bytes().as_slice(), outlives, int(limit as u64)];
    Ok(conn.prepare_cached(sql::AUDIT_OF_TENANT)?.execute(values)?)
}
