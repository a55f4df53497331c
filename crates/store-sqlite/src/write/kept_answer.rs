//! Kept answers: claiming, keeping, releasing, pruning.
//!
//! Only this process can use the file, so leases of claims end with it: they are counted from when the file was opened, and
//! opening it clears them.

use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{Seed, Timestamp};
use posthorn_store::{AnswerClaim, AnswerClaimed, AnswerKey, KeptAnswer};
use rusqlite::{Connection, OptionalExtension, params};

use crate::codec::{Columns, int};
use crate::error::Failure;
use crate::sql;
use crate::writer::Writer;

/// Ends the leases of whoever had the file open before.
pub(crate) fn clear_leases(conn: &Connection) -> Result<(), Failure> {
    conn.execute(sql::ANSWER_CLEAR, [])?;
    Ok(())
}

/// A row as it was found.
struct Found {
    seed: Seed,
    holder: Option<u128>,
    until: Option<i64>,
    expires_at: Timestamp,
    answer: Option<KeptAnswer>,
}

impl Found {
    fn of(row: &rusqlite::Row<'_>) -> Result<Self, Failure> {
        let columns = Columns::of(row, "kept_answer", 0);
        let number = |bytes: [u8; 16]| u128::from_be_bytes(bytes);
        let answer = match row.get::<_, Option<u16>>(5)? {
            None => None,
            Some(status) => {
                let body = Bytes::from(row.get::<_, Vec<u8>>(6)?);
                let answer = KeptAnswer::new(status, body);
                Some(answer.ok_or_else(|| columns.corrupt("the answer is too long"))?)
            }
        };
        Ok(Self {
            seed: (Timestamp::from_millis(row.get(0)?), number(row.get(1)?)),
            holder: row.get::<_, Option<[u8; 16]>>(2)?.map(number),
            until: row.get(3)?,
            expires_at: Timestamp::from_millis(row.get(4)?),
            answer,
        })
    }
}

fn find(conn: &Connection, key: &AnswerKey) -> Result<Option<Found>, Failure> {
    let mut statement = conn.prepare_cached(sql::ANSWER_FIND)?;
    let mut rows = statement.query([key.as_slice()])?;
    rows.next()?.map(Found::of).transpose()
}

/// Claims the work of a request, or says what was answered.
pub(crate) fn claim(writer: &mut Writer, claim: &AnswerClaim) -> Result<AnswerClaimed, Failure> {
    let now = millis(writer.opened.elapsed());
    let until = now.saturating_add(int(claim.lease.as_millis()));
    let holder = claim.holder.to_be_bytes();
    let found = find(&writer.conn, &claim.key)?.filter(|found| found.expires_at > claim.now);
    let Some(found) = found else {
        writer.conn.prepare_cached(sql::ANSWER_PUT)?.execute(params![
            claim.key.as_slice(),
            claim.seed.0.as_millis(),
            claim.seed.1.to_be_bytes().as_slice(),
            holder.as_slice(),
            until,
            claim.expires_at.as_millis(),
        ])?;
        return Ok(AnswerClaimed::Yours { seed: claim.seed });
    };
    if let Some(answer) = found.answer {
        return Ok(AnswerClaimed::Kept(answer));
    }
    let held = found.until.is_some_and(|until| until > now) && found.holder != Some(claim.holder);
    if held {
        return Ok(AnswerClaimed::Busy);
    }
    let values = params![claim.key.as_slice(), holder.as_slice(), until];
    writer.conn.prepare_cached(sql::ANSWER_TAKE)?.execute(values)?;
    Ok(AnswerClaimed::Yours { seed: found.seed })
}

/// Keeps an answer unless there is one; whether it did.
pub(crate) fn keep(
    conn: &Connection,
    key: &AnswerKey,
    answer: &KeptAnswer,
) -> Result<bool, Failure> {
    let values = params![key.as_slice(), answer.status(), answer.body().as_ref()];
    Ok(conn.prepare_cached(sql::ANSWER_KEEP)?.execute(values)? > 0)
}

/// Ends the lease of a claim.
pub(crate) fn release(conn: &Connection, key: &AnswerKey, holder: u128) -> Result<(), Failure> {
    let holder = holder.to_be_bytes();
    let values = params![key.as_slice(), holder.as_slice()];
    conn.prepare_cached(sql::ANSWER_RELEASE)?.execute(values)?;
    Ok(())
}

/// Whether there is a key whose time was over before a time.
pub(crate) fn may_prune(conn: &Connection, before: Timestamp) -> Result<bool, Failure> {
    let mut statement = conn.prepare_cached(sql::ANSWER_OVER)?;
    Ok(statement.query_row([before.as_millis()], |_| Ok(())).optional()?.is_some())
}

/// Removes keys whose time was over before a time; how many.
pub(crate) fn prune(conn: &Connection, before: Timestamp, limit: usize) -> Result<usize, Failure> {
    let values = params![before.as_millis(), int(limit as u64)];
    Ok(conn.prepare_cached(sql::PRUNE_ANSWERS)?.execute(values)?)
}

fn millis(elapsed: Duration) -> i64 {
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
