//! Deliveries whose time has come enter their lanes.
//!
//! The seq of a delivery is its place in its lane, and the key of its row. So one that enters is taken away
//! and written anew at the end, where it is one that was made later than its event, like those of jobs.

use posthorn_domain::{SubscriptionId, Timestamp};
use posthorn_store::Entered;
use rusqlite::{Connection, params};

use crate::codec::{Columns, NEVER, due, int};
use crate::error::Failure;
use crate::log::List;
use crate::log::changes::GONE;
use crate::sql;
use crate::writer::Writer;

/// A delivery outside its lane.
struct Outside {
    seq: i64,
    id: [u8; 16],
    event: i64,
    tenant: i64,
    subscription: i64,
    whose: SubscriptionId,
    lane: String,
    time: i64,
}

/// Writes down when a delivery enters which lane.
pub(crate) fn schedule(
    conn: &Connection,
    seq: i64,
    at: Timestamp,
    lane: &str,
) -> Result<(), Failure> {
    conn.prepare_cached("insert into scheduled (seq, at, lane) values (?1, ?2, ?3)")?
        .execute(params![seq, at.as_millis(), lane])?;
    Ok(())
}

/// One that has ended, or is gone, never enters.
pub(crate) fn unschedule(conn: &Connection, seq: i64) -> Result<(), Failure> {
    conn.prepare_cached("delete from scheduled where seq = ?1")?.execute([seq])?;
    Ok(())
}

/// Has deliveries enter their lanes whose time has come.
pub(crate) fn enter(writer: &mut Writer, limit: usize, at: Timestamp) -> Result<Entered, Failure> {
    let found = find(&writer.conn, limit, at)?;
    let more = found.len() == limit;
    let mut subscriptions = Vec::new();
    for outside in found {
        unschedule(&writer.conn, outside.seq)?;
        // Swept later, with all others of somebody who left.
        if writer.cache.unswept.contains(&outside.subscription) {
            continue;
        }
        enter_one(writer, &outside, at)?;
        subscriptions.push(outside.whose);
    }
    subscriptions.sort_unstable();
    subscriptions.dedup();
    Ok(Entered { subscriptions, more })
}

fn find(conn: &Connection, limit: usize, at: Timestamp) -> Result<Vec<Outside>, Failure> {
    let mut statement = conn.prepare_cached(sql::SCHEDULED)?;
    let mut rows = statement.query(params![at.as_millis(), int(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "scheduled", 0);
        found.push(Outside {
            seq: columns.int(0)?,
            id: columns.array(1)?,
            event: columns.int(2)?,
            tenant: columns.int(3)?,
            subscription: columns.int(4)?,
            whose: SubscriptionId::from_bytes(columns.array(5)?),
            lane: columns.text(6)?.to_owned(),
            time: columns.int(7)?,
        });
    }
    Ok(found)
}

/// The tally stays as it is: it was pending, and is.
fn enter_one(writer: &mut Writer, outside: &Outside, at: Timestamp) -> Result<(), Failure> {
    let Writer { conn, log, numbers, .. } = writer;
    let Outside { seq, id, event, tenant, subscription, lane, time, .. } = outside;
    numbers.seq += 1;
    let place = numbers.seq;
    conn.prepare_cached("delete from delivery where seq = ?1")?.execute([seq])?;
    log.touch(List::Deliveries, *seq, GONE);
    let values = params![place, id.as_slice(), event, tenant, subscription, due(at), lane];
    let due: i64 = conn.prepare_cached(sql::INSERT_IN_LANE)?.query_row(values, |row| row.get(0))?;
    if due == NEVER {
        // Whoever promotes it may have a clock that is behind.
        conn.prepare_cached("update delivery set held_until = ?2 where seq = ?1")?
            .execute([place, *time])?;
    }
    // A job may have made it, and then it is there already.
    conn.prepare_cached("delete from later_delivery where event = ?1 and seq = ?2")?
        .execute([event, seq])?;
    conn.prepare_cached(sql::INSERT_LATER)?.execute([*event, place, *subscription])?;
    Ok(())
}
