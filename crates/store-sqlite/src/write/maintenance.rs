//! Cancelling what nobody wants any more, and removing what nobody needs any more.

use posthorn_domain::{CancelReason, DeliveryState, Timestamp};
use posthorn_store::{Prune, Pruned, Swept};
use rusqlite::{OptionalExtension, params};

use crate::codec::{int, state_code};
use crate::error::Failure;
use crate::sql;
use crate::writer::Writer;

/// Cancels up to `limit` unfinished deliveries of deleted subscriptions.
pub(crate) fn sweep(writer: &mut Writer, limit: usize, at: Timestamp) -> Result<Swept, Failure> {
    let Writer { conn, cache, .. } = writer;
    let state = state_code(DeliveryState::Cancelled(CancelReason::Unsubscribed));
    let mut subscriptions: Vec<i64> = cache.unswept.iter().copied().collect();
    subscriptions.sort_unstable();
    let mut cancelled = 0;
    for subscription in subscriptions {
        let left = limit - cancelled;
        let values = params![subscription, at.as_millis(), state, int(left as u64)];
        let changed = conn.prepare_cached(sql::SWEEP)?.execute(values)?;
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
        super::keep_seqs(writer)?;
    }
    let conn = &writer.conn;
    let dead_before = prune.dead_before.min(prune.ended_before);
    let mut check = conn.prepare_cached(sql::PRUNE_CHECK)?;
    let mut attempts =
        conn.prepare_cached("delete from attempt where delivery >= ?1 and delivery < ?2")?;
    let mut deliveries =
        conn.prepare_cached("delete from delivery where seq >= ?1 and seq < ?2")?;
    let mut event = conn.prepare_cached("delete from event where no = ?1")?;
    let mut events = 0;
    for no in candidates {
        let values = params![no, prune.ended_before.as_millis(), dead_before.as_millis()];
        let found = check
            .query_row(values, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        // It may have been brought back since it was looked for.
        let Some((first, count)) = found else { continue };
        attempts.execute([first, first + count])?;
        deliveries.execute([first, first + count])?;
        events += event.execute([no])?;
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
    let more = [keys, redrives, recalls].iter().any(|gone| *gone >= prune.limit);
    Ok(Pruned { events, keys, redrives, more })
}
