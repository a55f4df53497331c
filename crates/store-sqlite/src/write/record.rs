//! Claims and records: the other half of the hot path.

use std::time::Instant;

use posthorn_domain::{Attempt, DeliveryId, DeliveryState, Outcome};
use posthorn_store::{Claim, Record, Recorded, Standing, Streak};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{accept, lanes, told};
use crate::cache::Cache;
use crate::codec::{NEVER, due, int, state_code};
use crate::error::Failure;
use crate::log::List;
use crate::log::changes::{Moving, OUTCOMES};
use crate::sql;
use crate::writer::{Weight, Writer};

/// How much work a batch is.
pub(crate) fn weight(batch: &[Record]) -> Weight {
    let attempts = batch.iter().filter_map(|record| record.attempt.as_ref());
    let bytes: usize = attempts.map(|attempt| attempt.response.len()).sum();
    let told = batch.iter().filter(|record| !record.told.is_empty());
    let (more_rows, more_bytes) = told
        .map(|record| told::weight(&record.told))
        .fold((0, 0), |(rows, bytes), own| (rows + own.rows, bytes + own.bytes));
    Weight { rows: batch.len() * 2 + more_rows, bytes: bytes + more_bytes }
}

/// Writes down leases.
pub(crate) fn claim(writer: &mut Writer, batch: &[Claim]) -> Result<Vec<bool>, Failure> {
    let now = Instant::now();
    let conn = &writer.conn;
    let mut update = conn.prepare_cached(sql::CLAIM)?;
    let mut replies = Vec::with_capacity(batch.len());
    for claim in batch {
        let allowed = writer.leases.allow_attempt(&claim.fence, now)
            && !is_deleted(conn, &writer.cache, &claim.delivery)?
            && update.execute(params![
                claim.delivery.as_bytes().as_slice(),
                claim.expected_attempts,
                claim.fence.shard.number(),
                NEVER,
                due(claim.until),
                claim.expected_revival,
            ])? == 1;
        replies.push(allowed);
    }
    Ok(replies)
}

/// Writes down what became of deliveries, each item judged by itself.
pub(crate) fn record(writer: &mut Writer, batch: &[Record]) -> Result<Vec<Recorded>, Failure> {
    let Writer { conn, cache, leases, numbers, log, .. } = writer;
    let mut update = conn.prepare_cached(sql::RECORD)?;
    let mut insert = conn.prepare_cached(sql::INSERT_ATTEMPT)?;
    let mut replies = Vec::with_capacity(batch.len());
    for record in batch {
        if told::is_stale(cache, &record.told) {
            replies.push(Recorded::Stale);
            continue;
        }
        let fenced = !leases.allow_outcome(&record.fence);
        if let Some(standing) = record.standing.filter(|_| !fenced) {
            stand(conn, cache, &standing)?;
        }
        let written = if fenced || is_deleted(conn, cache, &record.delivery)? {
            None
        } else {
            match apply(&mut update, record)? {
                None => apply_older(conn, record)?,
                written => written,
            }
        };
        let Some(row) = written else {
            keep_late(conn, &mut insert, record, &mut numbers.attempt)?;
            replies.push(if fenced { Recorded::Fenced } else { Recorded::Superseded });
            continue;
        };
        if let Some(attempt) = &record.attempt {
            numbers.attempt += 1;
            let of = (row.seq, row.subscription);
            insert_attempt(&mut insert, numbers.attempt, of, attempt, attempt.late)?;
        }
        let ends = record.step.state.is_terminal();
        match cache.tenants.get(&record.tenant) {
            Some(tenant) if ends => {
                let moving = Moving { tenant: tenant.no, event: row.event, seq: row.seq };
                log.moved(moving, DeliveryState::Pending, record.step.state);
            }
            _ => log.touch(List::Deliveries, row.seq, OUTCOMES),
        }
        let released = record.step.release_lane && ends && !row.was_parked;
        let promoted = match (&row.lane, released) {
            (Some(lane), true) => lanes::promote(conn, row.subscription, lane, record.at)?,
            _ => None,
        };
        if !record.told.is_empty() {
            accept::accept_with(conn, cache, numbers, log, &record.told)?;
        }
        replies.push(Recorded::Written { promoted });
    }
    Ok(replies)
}

/// Writes down since when a receiver has only failed, or that it has not.
fn stand(conn: &Connection, cache: &Cache, standing: &Standing) -> Result<(), Failure> {
    let Some(known) = cache.subscriptions.get(&standing.subscription) else {
        return Ok(());
    };
    match standing.failing {
        None => conn.prepare_cached(sql::FAILING_END)?.execute([known.no])?,
        Some(Streak { since, exhausted, told }) => conn
            .prepare_cached(sql::FAILING_BEGIN)?
            .execute(params![known.no, since.as_millis(), exhausted, told])?,
    };
    Ok(())
}

struct Written {
    seq: i64,
    subscription: i64,
    lane: Option<String>,
    event: i64,
    /// Others of its lane were before it, so its end lets nobody go on.
    was_parked: bool,
}

/// What the receiver has, it has: a success counts whatever was done by hand since it was sent.
fn apply_older(conn: &Connection, record: &Record) -> Result<Option<Written>, Failure> {
    let step = &record.step;
    if step.state != DeliveryState::Delivered {
        return Ok(None);
    }
    let values = params![
        record.delivery.as_bytes().as_slice(),
        record.expected_attempts,
        record.fence.shard.number(),
    ];
    let found = conn
        .prepare_cached(sql::FIND_OLDER)?
        .query_row(values, |row| {
            let was_parked = row.get::<_, i64>(4)? == NEVER;
            Ok(Written {
                seq: row.get(0)?,
                subscription: row.get(1)?,
                lane: row.get(2)?,
                event: row.get(3)?,
                was_parked,
            })
        })
        .optional()?;
    if let Some(row) = &found {
        conn.prepare_cached(sql::RECORD_OLDER)?.execute(params![
            row.seq,
            state_code(step.state),
            NEVER,
            step.charge,
            record.at.as_millis(),
            outcome(record),
        ])?;
    }
    Ok(found)
}

/// One conditional update tells whether the writer is up to date, and changes the delivery if so.
fn apply(update: &mut CachedStatement<'_>, record: &Record) -> Result<Option<Written>, Failure> {
    let step = &record.step;
    let ends = step.state.is_terminal();
    let written = update
        .query_row(
            params![
                record.delivery.as_bytes().as_slice(),
                record.expected_attempts,
                record.fence.shard.number(),
                NEVER,
                state_code(step.state),
                if ends { NEVER } else { due(step.due_at) },
                step.charge,
                ends.then(|| record.at.as_millis()),
                ends && step.release_lane,
                record.expected_revival,
                outcome(record),
            ],
            |row| {
                let (seq, subscription, lane) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Written { seq, subscription, lane, event: row.get(3)?, was_parked: false })
            },
        )
        .optional()?;
    Ok(written)
}

/// What its attempt came to, as it is stored.
fn outcome(record: &Record) -> Option<i32> {
    record.attempt.as_ref().and_then(Attempt::came_of_it).map(Outcome::code)
}

/// Whether a delivery's subscription is deleted and not swept yet. Costs a lookup only while there
/// is such a subscription.
fn is_deleted(conn: &Connection, cache: &Cache, delivery: &DeliveryId) -> Result<bool, Failure> {
    if cache.unswept.is_empty() {
        return Ok(false);
    }
    let found = find(conn, delivery)?;
    Ok(found.is_some_and(|(_, subscription)| cache.unswept.contains(&subscription)))
}

fn find(conn: &Connection, delivery: &DeliveryId) -> Result<Option<(i64, i64)>, Failure> {
    let mut statement = conn.prepare_cached(sql::FIND_BY_ID)?;
    let found = statement
        .query_row([delivery.as_bytes().as_slice()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found)
}

/// Keeps the attempt of an item that changed nothing.
fn keep_late(
    conn: &Connection,
    insert: &mut CachedStatement<'_>,
    record: &Record,
    last: &mut i64,
) -> Result<(), Failure> {
    if let Some(attempt) = &record.attempt
        && let Some(of) = find(conn, &record.delivery)?
    {
        *last += 1;
        insert_attempt(insert, *last, of, attempt, true)?;
    }
    Ok(())
}

fn insert_attempt(
    insert: &mut CachedStatement<'_>,
    no: i64,
    (seq, subscription): (i64, i64),
    attempt: &Attempt,
    late: bool,
) -> Result<(), Failure> {
    insert.execute(params![
        seq,
        attempt.number,
        attempt.started_at.as_millis(),
        int(attempt.took.as_millis()),
        late,
        attempt.status,
        attempt.failure.map(|code| code.as_str()),
        // Most attempts have few of these; null costs one byte.
        Some(attempt.detail.as_str()).filter(|detail| !detail.is_empty()),
        Some(attempt.response.as_ref()).filter(|response| !response.is_empty()),
        attempt.timings.to_text(),
        no,
        subscription,
        attempt.manual,
        attempt.request.as_ref().map(|request| request.to_text()),
    ])?;
    Ok(())
}
