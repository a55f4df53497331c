//! Cancelling what nobody wants any more, and removing what nobody needs any more.

use posthorn_domain::{CancelReason, DeliveryState, Timestamp};
use posthorn_store::{Prune, Pruned, Swept};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::entry;
use crate::codec::{int, state_code};
use crate::error::Failure;
use crate::log::changes::{Changes, Moving, STATES};
use crate::log::{List, OPEN};
use crate::sql;
use crate::writer::Writer;

/// States of deliveries that have not ended are below this.
const UNFINISHED: i64 = 2;

/// Cancels up to `limit` unfinished deliveries of deleted subscriptions.
pub(crate) fn sweep(writer: &mut Writer, limit: usize, at: Timestamp) -> Result<Swept, Failure> {
    let Writer { conn, cache, log, .. } = writer;
    let state = state_code(DeliveryState::Cancelled(CancelReason::Unsubscribed));
    let mut subscriptions: Vec<i64> = cache.unswept.iter().copied().collect();
    subscriptions.sort_unstable();
    let mut cancelled = 0;
    for subscription in subscriptions {
        let left = limit - cancelled;
        let values = params![subscription, at.as_millis(), state, int(left as u64)];
        let mut statement = conn.prepare_cached(sql::SWEEP)?;
        let mut rows = statement.query(values)?;
        let mut changed = 0;
        while let Some(row) = rows.next()? {
            changed += 1;
            log.touch(List::Deliveries, row.get(0)?, STATES);
            log.moved_many(row.get(1)?, OPEN, state, 1);
            entry::unschedule(conn, row.get(0)?)?;
        }
        cancelled += changed;
        if changed == left {
            return Ok(Swept { cancelled, more: true });
        }
        conn.prepare_cached(sql::SWEEP_BLOCKERS)?.execute([subscription])?;
        conn.prepare_cached("update subscription set swept = 1 where no = ?1")?
            .execute([subscription])?;
        cache.unswept.remove(&subscription);
    }
    Ok(Swept { cancelled, more: false })
}

/// An event that goes with its deliveries and attempts.
pub(super) struct Doomed {
    no: i64,
    first: i64,
    count: i64,
    /// Whether it has a retention of its own.
    expires: bool,
}

impl Doomed {
    pub(super) fn of(row: &Row<'_>, no: i64) -> rusqlite::Result<Self> {
        let expires = row.get::<_, Option<i64>>(2)?.is_some();
        Ok(Self { no, first: row.get(0)?, count: row.get(1)?, expires })
    }

    /// How many rows it is, more or less.
    pub(super) fn rows(&self) -> usize {
        usize::try_from(self.count).unwrap_or_default().saturating_add(1)
    }

    pub(super) fn remove(&self, conn: &Connection, log: &mut Changes) -> Result<(), Failure> {
        let Self { no, first, count, expires } = self;
        let mut later = conn.prepare_cached("select seq from later_delivery where event = ?1")?;
        let later = later.query_map([no], |row| row.get::<_, i64>(0))?;
        let later = later.collect::<rusqlite::Result<Vec<i64>>>()?;
        let ranges = later.iter().map(|seq| (*seq, seq + 1)).chain([(*first, first + count)]);
        let mut deliveries = conn.prepare_cached(
            "delete from delivery where seq >= ?1 and seq < ?2 returning seq, tenant, state",
        )?;
        for (first, end) in ranges {
            super::remove_attempts(conn, log, first, end)?;
            let mut rows = deliveries.query([first, end])?;
            while let Some(row) = rows.next()? {
                let (seq, state): (i64, i64) = (row.get(0)?, row.get(2)?);
                log.removed(Moving { tenant: row.get(1)?, event: *no, seq }, state);
                // Only the deletion of a tenant removes what has not ended.
                if state < UNFINISHED {
                    entry::unschedule(conn, seq)?;
                }
            }
        }
        if !later.is_empty() {
            conn.prepare_cached("delete from later_delivery where event = ?1")?.execute([no])?;
        }
        if *expires {
            conn.prepare_cached("delete from expiry where event = ?1")?.execute([no])?;
        }
        let tenant = conn
            .prepare_cached("delete from event where no = ?1 returning tenant")?
            .query_row([no], |row| row.get(0))?;
        log.removed_event(tenant, *no);
        Ok(())
    }
}

/// Removes events whose own retention is over. Those that cannot go yet are looked at again later.
pub(crate) fn expire(writer: &mut Writer, prune: &Prune) -> Result<Pruned, Failure> {
    super::keep_numbers(writer)?;
    let Writer { conn, log, .. } = writer;
    let values = params![prune.now.as_millis(), int(prune.limit as u64)];
    let mut statement = conn.prepare_cached(sql::EXPIRED)?;
    let found = statement.query_map(values, |row| row.get(0))?;
    let found = found.collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut events = 0;
    for no in &found {
        let read = |row: &Row<'_>| {
            Ok((Doomed::of(row, *no)?, row.get::<_, bool>(3)?, row.get::<_, i64>(4)?))
        };
        let mut check = conn.prepare_cached(sql::EXPIRED_CHECK)?;
        let (doomed, ready, expired) = check.query_row([no], read)?;
        if ready {
            doomed.remove(conn, log)?;
            events += 1;
        } else {
            let again = prune.look_again(Timestamp::from_millis(expired)).as_millis();
            conn.prepare_cached("update expiry set at = ?2 where event = ?1")?
                .execute([*no, again])?;
        }
    }
    Ok(Pruned { events, more: found.len() >= prune.limit, ..Pruned::default() })
}

/// Removes those of `candidates` that may still go, and old keys.
pub(crate) fn prune(
    writer: &mut Writer,
    candidates: &[i64],
    prune: &Prune,
) -> Result<Pruned, Failure> {
    if !candidates.is_empty() {
        super::keep_numbers(writer)?;
    }
    let Writer { conn, log, .. } = writer;
    let dead_before = prune.dead_before.min(prune.ended_before);
    let mut events = 0;
    for no in candidates {
        let values = params![no, prune.ended_before.as_millis(), dead_before.as_millis()];
        let found = conn
            .prepare_cached(sql::PRUNE_CHECK)?
            .query_row(values, |row| Doomed::of(row, *no))
            .optional()?;
        // It may have been brought back since it was looked for.
        let Some(doomed) = found else { continue };
        doomed.remove(conn, log)?;
        events += 1;
    }
    if events > 0 {
        conn.prepare_cached(sql::PRUNED)?.execute([prune.ended_before.as_millis()])?;
    }
    let limit = int(prune.limit as u64);
    let keys = conn
        .prepare_cached(sql::PRUNE_KEYS)?
        .execute(params![prune.keys_before.as_millis(), limit])?;
    let redrives = conn
        .prepare_cached(sql::PRUNE_REDRIVES)?
        .execute(params![prune.ended_before.as_millis(), limit])?;
    let recalls = conn
        .prepare_cached(sql::PRUNE_RECALLS)?
        .execute(params![prune.recalls_before.as_millis(), limit])?;
    conn.prepare_cached(sql::PRUNE_JOBS)?
        .execute(params![prune.ended_before.as_millis(), limit])?;
    let audit = super::audit::prune(conn, prune.audit_before, prune.limit)?;
    let more = [keys, redrives, recalls, audit].iter().any(|gone| *gone >= prune.limit);
    Ok(Pruned { events, keys, redrives, audit, more })
}
