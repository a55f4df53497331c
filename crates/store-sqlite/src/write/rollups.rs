//! Figures of the past: written with outcomes, added up to hours, removed by age.

use std::collections::BTreeMap;

use posthorn_domain::{RollupCounts, RollupStep, Timestamp};
use posthorn_store::{Rollups, TendRollups};
use rusqlite::{Connection, OptionalExtension, params};

use crate::codec::{Columns, int};
use crate::error::Failure;
use crate::read::rollups::{Folded, counts, folded};
use crate::sql;
use crate::writer::Writer;

/// Writes what a node has counted. The rows of one minute are neighbours.
pub(crate) fn write(conn: &Connection, rollups: &Rollups) -> Result<(), Failure> {
    let mut put = conn.prepare_cached(sql::ROLLUP_PUT)?;
    for row in &rollups.minutes {
        put.execute(params![
            row.minute.as_millis(),
            row.scope.to_string(),
            rollups.node.as_bytes().as_slice(),
            int(rollups.number),
            row.counts.to_bytes(),
        ])?;
    }
    Ok(())
}

/// Adds minutes to their hours, and then removes what is too old; whether there may be more.
pub(crate) fn tend(writer: &mut Writer, tend: &TendRollups) -> Result<bool, Failure> {
    let conn = &writer.conn;
    if fold(conn, tend)? >= tend.limit {
        return Ok(true);
    }
    let limit = int(tend.limit as u64);
    // All before this moment are in their hours; of those at it, some may not be.
    let before = tend.minutes_before.as_millis().min(folded(conn)?.at);
    let minutes = conn.prepare_cached(sql::ROLLUP_PRUNE)?.execute([before, limit])?;
    let before = tend.hours_before.as_millis();
    let hours = conn.prepare_cached(sql::ROLLUP_HOUR_PRUNE)?.execute([before, limit])?;
    Ok(minutes >= tend.limit || hours >= tend.limit)
}

/// How many rows were added to their hours.
fn fold(conn: &Connection, tend: &TendRollups) -> Result<usize, Failure> {
    let Folded { at, scope, node } = folded(conn)?;
    let mut due = conn.prepare_cached(sql::ROLLUP_DUE)?;
    let before = tend.fold_before.as_millis();
    let mut rows = due.query(params![at, scope, node, before, int(tend.limit as u64)])?;
    let mut sums: BTreeMap<(Timestamp, String), RollupCounts> = BTreeMap::new();
    let (mut found, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "rollup", 0);
        let (at, scope) = (columns.int(0)?, columns.text(1)?.to_owned());
        let hour = RollupStep::Hour.floor(Timestamp::from_millis(at));
        sums.entry((hour, scope.clone())).or_default().add(&counts(&columns, 3)?);
        last = Some((at, scope, columns.bytes(2)?.to_vec()));
        found += 1;
    }
    let mut get = conn.prepare_cached(sql::ROLLUP_HOUR)?;
    let mut put = conn.prepare_cached(sql::ROLLUP_HOUR_PUT)?;
    for ((hour, scope), mut sum) in sums {
        let read = |row: &rusqlite::Row<'_>| Ok(counts(&Columns::of(row, "rollup_hour", 0), 1));
        let before = get.query_row(params![hour.as_millis(), scope], read).optional()?;
        if let Some(before) = before {
            sum.add(&before?);
        }
        put.execute(params![hour.as_millis(), scope, sum.to_bytes()])?;
    }
    if let Some((at, scope, node)) = last {
        conn.prepare_cached("update folded_rollup set at = ?1, scope = ?2, node = ?3")?
            .execute(params![at, scope, node])?;
    }
    Ok(found)
}
