//! Removing everything of a tenant that is being deleted, bite by bite.
//!
//! The order matters: as long as there is a subscription, a lane could be entered or a delivery made by a job; as long
//! as there are events, somebody could ask for them. What is left at the end is the line of the tenant, the lines of
//! its subscriptions (numbers that are never given out again), the job that says when it was done, and the line of the
//! audit log that says who asked for it. What goes is
//! overwritten, as what is expunged.

use posthorn_domain::{CatalogVersion, Job, KeyId, RollupScope, SubscriptionId, Timestamp};
use posthorn_store::entry::Kind;
use posthorn_store::{Along, Bite, CatalogChange, Refusal};
use rusqlite::params;

use super::expunge::overwriting;
use super::maintenance::Doomed;
use super::{catalog, told};
use crate::cache::KnownTenant;
use crate::codec::{Columns, int};
use crate::error::Failure;
use crate::sql;
use crate::writer::Writer;

/// What went.
#[derive(Default)]
pub(crate) struct Removed {
    pub(crate) rows: usize,
    /// Set when there was nothing left: the version that says so.
    pub(crate) buried: Option<CatalogVersion>,
}

/// Removes one kind of thing, up to a limit; how many rows went.
type Part = fn(&mut Writer, &Job, KnownTenant, usize, Timestamp) -> Result<usize, Failure>;

/// Removes about so many rows of the job's tenant.
pub(crate) fn remove(
    writer: &mut Writer,
    job: &Job,
    known: KnownTenant,
    limit: usize,
    bite: &Bite,
) -> Result<Removed, Failure> {
    // Nobody's rows go who is not to be deleted, whatever a job says.
    if !known.closed {
        return Err(Refusal::NotFound.into());
    }
    let mut removed = Removed::default();
    let parts: [Part; 8] = [unsubscribe, events, keys, jobs, sessions, figures, lines, entries];
    for part in parts {
        let left = limit.saturating_sub(removed.rows);
        if left == 0 {
            return Ok(removed);
        }
        removed.rows += part(writer, job, known, left, bite.at)?;
    }
    // What is told of the end is the whole of it, so nothing else may have happened with it.
    let is_end = bite.ending.is_none() || removed.rows == 0;
    if removed.rows < limit && is_end {
        told::check_end(&writer.cache, bite.ending.as_ref(), job.seen, job.done)?;
        told::tell_end(writer, bite.ending.as_ref())?;
        let bury = CatalogChange::BuryTenant { tenant: job.tenant };
        removed.buried = Some(catalog::change(writer, &bury, &Along::default())?);
    }
    Ok(removed)
}

/// Deletes subscriptions, as if somebody had done it by hand, and stops what else runs for the tenant.
fn unsubscribe(
    writer: &mut Writer,
    job: &Job,
    known: KnownTenant,
    limit: usize,
    at: Timestamp,
) -> Result<usize, Failure> {
    let ids = {
        let mut statement = writer.conn.prepare_cached(sql::SUBSCRIPTIONS_OF_TENANT)?;
        let mut rows = statement.query(params![known.no, int(limit as u64)])?;
        let mut ids = Vec::new();
        while let Some(row) = rows.next()? {
            ids.push(SubscriptionId::from_bytes(Columns::of(row, "subscription", 0).array(0)?));
        }
        ids
    };
    for id in &ids {
        let delete = CatalogChange::DeleteSubscription { tenant: job.tenant, id: *id, at };
        catalog::change(writer, &delete, &Along::default())?;
    }
    let own = job.id.as_bytes().as_slice();
    writer
        .conn
        .prepare_cached(
            "update job set state = 2, finished_at = ?3 where tenant = ?1 and id <> ?2 and state = 0",
        )?
        .execute(params![known.no, own, at.as_millis()])?;
    writer
        .conn
        .prepare_cached(
            "update redrive set state = 2, finished_at = ?2 where tenant = ?1 and state = 0",
        )?
        .execute(params![known.no, at.as_millis()])?;
    Ok(ids.len())
}

/// Removes events with their deliveries and attempts.
fn events(
    writer: &mut Writer,
    _job: &Job,
    known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let doomed = {
        let mut statement = writer.conn.prepare_cached(sql::EVENTS_OF_TENANT)?;
        let read = |row: &rusqlite::Row<'_>| Doomed::of(row, row.get(3)?);
        let found = statement.query_map(params![known.no, int(limit as u64)], read)?;
        found.collect::<rusqlite::Result<Vec<Doomed>>>()?
    };
    if doomed.is_empty() {
        return Ok(0);
    }
    super::keep_numbers(writer)?;
    let Writer { conn, log, .. } = writer;
    overwriting(conn, || {
        let mut rows = 0;
        for event in doomed {
            event.remove(conn, log)?;
            rows += event.rows();
            if rows >= limit {
                break;
            }
        }
        Ok(rows)
    })
}

/// Removes idempotency keys.
fn keys(
    writer: &mut Writer,
    _job: &Job,
    known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let values = params![known.no, int(limit as u64)];
    Ok(writer.conn.prepare_cached(sql::FORGET_KEYS_OF_TENANT)?.execute(values)?)
}

/// Removes redrives, and all jobs but its own.
fn jobs(
    writer: &mut Writer,
    job: &Job,
    known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let limit = int(limit as u64);
    let redrives = "delete from redrive where id in \
                    (select id from redrive where tenant = ?1 limit ?2)";
    let redrives = writer.conn.prepare_cached(redrives)?.execute(params![known.no, limit])?;
    let jobs = "delete from job where id in \
                (select id from job where tenant = ?1 and id <> ?2 limit ?3)";
    let own = job.id.as_bytes().as_slice();
    let jobs = writer.conn.prepare_cached(jobs)?.execute(params![known.no, own, limit])?;
    Ok(redrives + jobs)
}

/// Removes sessions of pages, and links.
fn sessions(
    writer: &mut Writer,
    job: &Job,
    _known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let conn = &writer.conn;
    overwriting(conn, || super::session::forget(conn, job.tenant, limit))
}

/// Removes figures of the past: of the tenant, of subscriptions that it has had, and of its topics.
fn figures(
    writer: &mut Writer,
    job: &Job,
    known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let conn = &writer.conn;
    let mut statement = conn.prepare_cached("select id from subscription where tenant = ?1")?;
    let mut rows = statement.query([known.no])?;
    let topics = RollupScope::topics_of(job.tenant);
    // Both ends are part of a range here; nothing is called like one of topics.
    let one = |scope: RollupScope| (scope.to_string(), scope.to_string());
    let mut scopes = vec![one(RollupScope::Tenant(job.tenant)), topics];
    while let Some(row) = rows.next()? {
        let id = SubscriptionId::from_bytes(Columns::of(row, "subscription", 0).array(0)?);
        scopes.push(one(RollupScope::Subscription(id)));
    }
    overwriting(conn, || {
        let mut gone = 0;
        for (first, last) in &scopes {
            for sql in [sql::ROLLUPS_OF, sql::ROLLUP_HOURS_OF] {
                let left = limit.saturating_sub(gone);
                if left == 0 {
                    return Ok(gone);
                }
                gone +=
                    conn.prepare_cached(sql)?.execute(params![first, last, int(left as u64)])?;
            }
        }
        Ok(gone)
    })
}

/// Removes lines of the audit log; the one that says that the tenant was deleted stays.
fn lines(
    writer: &mut Writer,
    job: &Job,
    _known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let conn = &writer.conn;
    overwriting(conn, || super::audit::forget(conn, job.tenant, limit))
}

/// Removes everything of the catalog but the tenant itself. Nobody needs to be told: whoever heard that the tenant is
/// to be deleted has let go of all of it.
fn entries(
    writer: &mut Writer,
    job: &Job,
    _known: KnownTenant,
    limit: usize,
    _at: Timestamp,
) -> Result<usize, Failure> {
    let conn = &writer.conn;
    let found = {
        let mut statement = conn.prepare_cached(sql::ENTRIES_OF_TENANT)?;
        let tenant = job.tenant.as_bytes().as_slice();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = statement.query_map(params![tenant, int(limit as u64)], read)?;
        found.collect::<rusqlite::Result<Vec<(String, String)>>>()?
    };
    overwriting(conn, || {
        for (kind, key) in &found {
            conn.prepare_cached("delete from entry where kind = ?1 and key = ?2")?
                .execute(params![kind, key])?;
            if kind == Kind::Key.as_str()
                && let Ok(id) = key.parse::<KeyId>()
            {
                conn.prepare_cached("delete from key_use where key = ?1")?
                    .execute([id.as_bytes().as_slice()])?;
            }
        }
        Ok(found.len())
    })
}
