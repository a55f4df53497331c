//! What the writer does: one function for each command, inside a transaction that others share.
//!
//! Each may be run again from the start after a rollback, so none keeps anything outside the
//! [`Writer`](crate::writer::Writer). A refusal comes before the first write.

pub(crate) mod accept;
pub(crate) mod audit;
pub(crate) mod catalog;
pub(crate) mod entry;
pub(crate) mod expunge;
pub(crate) mod job;
pub(crate) mod kept_answer;
pub(crate) mod lanes;
pub(crate) mod maintenance;
pub(crate) mod membership;
pub(crate) mod record;
pub(crate) mod redrive;
pub(crate) mod rollups;
pub(crate) mod session;
pub(crate) mod tenant;
pub(crate) mod told;

use rusqlite::Connection;

use crate::error::Failure;
use crate::log::List;
use crate::log::changes::{Changes, GONE};
use crate::writer::{Numbers, Writer};

/// Before rows are removed: what is removed may be the newest, and its number must not be given out again
/// after a restart.
fn keep_numbers(writer: &Writer) -> Result<(), Failure> {
    let Numbers { event, seq, attempt } = writer.numbers;
    writer
        .conn
        .prepare_cached("update store set event_floor = ?1, seq_floor = ?2, attempt_floor = ?3")?
        .execute([event, seq, attempt])?;
    Ok(())
}

/// Removes the attempts of deliveries from one seq up to, but without, another.
fn remove_attempts(
    conn: &Connection,
    log: &mut Changes,
    from: i64,
    until: i64,
) -> Result<(), Failure> {
    let sql = "delete from attempt where delivery >= ?1 and delivery < ?2 returning no";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([from, until])?;
    while let Some(row) = rows.next()? {
        log.touch(List::Attempts, row.get(0)?, GONE);
    }
    Ok(())
}
