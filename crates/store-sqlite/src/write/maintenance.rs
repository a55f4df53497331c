//! Cancelling what nobody wants any more, and removing what nobody needs any more.

use posthorn_domain::{CancelReason, DeliveryState, Timestamp};
use posthorn_store::{Prune, Pruned, Swept};
use rusqlite::{OptionalExtension, params};

use crate::codec::{int, state_code};
use crate::error::Failure;
use crate::log::changes::{Moving, STATES};
use crate::log::{List, OPEN};
use crate::sql;
use crate::writer::Writer;

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
    let mut check = conn.prepare_cached(sql::PRUNE_CHECK)?;
    let mut deliveries = conn.prepare_cached(
        "delete from delivery where seq >= ?1 and seq < ?2 returning seq, tenant, state",
    )?;
    let mut later = conn.prepare_cached("select seq from later_delivery where event = ?1")?;
    let mut forget_later = conn.prepare_cached("delete from later_delivery where event = ?1")?;
    let mut event = conn.prepare_cached("delete from event where no = ?1 returning tenant")?;
    let mut events = 0;
    for no in candidates {
        let values = params![no, prune.ended_before.as_millis(), dead_before.as_millis()];
        let found = check
            .query_row(values, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        // It may have been brought back since it was looked for.
        let Some((first, count)) = found else { continue };
        let later = later.query_map([no], |row| row.get::<_, i64>(0))?;
        let later = later.collect::<rusqlite::Result<Vec<i64>>>()?;
        let ranges = later.iter().map(|seq| (*seq, seq + 1)).chain([(first, first + count)]);
        for (first, end) in ranges {
            super::remove_attempts(conn, log, first, end)?;
            let mut rows = deliveries.query([first, end])?;
            while let Some(row) = rows.next()? {
                let moving = Moving { tenant: row.get(1)?, event: *no, seq: row.get(0)? };
                log.removed(moving, row.get(2)?);
            }
        }
        if !later.is_empty() {
            forget_later.execute([no])?;
        }
        if let Some(tenant) = event.query_row([no], |row| row.get(0)).optional()? {
            log.removed_event(tenant, *no);
            events += 1;
        }
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
    let more = [keys, redrives, recalls].iter().any(|gone| *gone >= prune.limit);
    Ok(Pruned { events, keys, redrives, more })
}
