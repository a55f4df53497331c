//! Bulk redrives. The cursor is a seq, so lanes come back in order and nothing is moved twice.

use posthorn_domain::{
    Budget, Redrive, RedriveId, RedriveState, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Advanced, Along, Ending, Refusal};
use rusqlite::{Connection, ToSql, params};

use super::{audit, lanes, told};
use crate::codec::{Columns, dead_code, int, json, redrive_code};
use crate::error::Failure;
use crate::read::queries;
use crate::sql;
use crate::writer::Writer;

/// Writes down a redrive and counts what it will move.
pub(crate) fn create(
    writer: &mut Writer,
    redrive: &Redrive,
    along: &Along,
) -> Result<Redrive, Failure> {
    let tenant = writer.cache.tenants.get(&redrive.tenant).filter(|tenant| !tenant.closed);
    let tenant = *tenant.ok_or(Refusal::NotFound)?;
    audit::check(&writer.cache, along)?;
    let conn = &writer.conn;
    if queries::redrive(conn, redrive.id)?.is_some() {
        return Err(Refusal::AlreadyExists.into());
    }
    let mut stored = redrive.clone();
    stored.total = with_filter(redrive, tenant.no, 0, |values| {
        let mut statement = conn.prepare_cached(sql::COUNT_REDRIVABLE)?;
        Ok(statement.query_row(values, |row| row.get::<_, i64>(0))?.unsigned_abs())
    })?;
    conn.prepare_cached(sql::INSERT_REDRIVE)?.execute(params![
        stored.id.as_bytes().as_slice(),
        tenant.no,
        json(&stored.filter),
        stored.per_second,
        redrive_code(stored.state),
        int(stored.total),
        int(stored.moved),
        stored.created_at.as_millis(),
        stored.finished_at.map(Timestamp::as_millis),
    ])?;
    audit::write(writer, along)?;
    Ok(stored)
}

/// Stops a running redrive.
pub(crate) fn cancel(
    writer: &mut Writer,
    tenant: TenantId,
    id: RedriveId,
    at: Timestamp,
    ending: Option<&Ending>,
    along: &Along,
) -> Result<Redrive, Failure> {
    let found = queries::redrive(&writer.conn, id)?.filter(|(redrive, _)| redrive.tenant == tenant);
    let (mut redrive, _) = found.ok_or(Refusal::NotFound)?;
    if redrive.state == RedriveState::Running {
        told::check_end(&writer.cache, ending, redrive.total, redrive.moved)?;
        audit::check(&writer.cache, along)?;
        told::tell_end(writer, ending)?;
        audit::write(writer, along)?;
        redrive.state = RedriveState::Cancelled;
        redrive.finished_at = Some(at);
        writer
            .conn
            .prepare_cached("update redrive set state = ?2, finished_at = ?3 where id = ?1")?
            .execute(params![
                id.as_bytes().as_slice(),
                redrive_code(redrive.state),
                at.as_millis()
            ])?;
    }
    Ok(redrive)
}

/// Moves the next dead letters of a running redrive.
pub(crate) fn advance(
    writer: &mut Writer,
    id: RedriveId,
    limit: usize,
    at: Timestamp,
    ending: Option<&Ending>,
) -> Result<Advanced, Failure> {
    let (redrive, cursor) = queries::redrive(&writer.conn, id)?.ok_or(Refusal::NotFound)?;
    if redrive.state != RedriveState::Running {
        let state = redrive.state;
        return Ok(Advanced { moved: 0, subscriptions: Vec::new(), state, recall: None });
    }
    let tenant = writer.cache.tenants.get(&redrive.tenant).ok_or(Refusal::NotFound)?.no;
    let letters = next_letters(&writer.conn, &redrive, tenant, cursor, limit)?;
    // What is told is the whole of it: then the end does nothing else.
    let done = if ending.is_some() { letters.is_empty() } else { letters.len() < limit };
    if done {
        told::check_end(&writer.cache, ending, redrive.total, redrive.moved)?;
        told::tell_end(writer, ending)?;
    }
    let Writer { conn, log, .. } = writer;
    let mut recalls = Vec::new();
    for (seq, _) in &letters {
        recalls.extend(lanes::revive(conn, log, *seq, Budget::Fresh, at)?);
    }
    let state = if done { RedriveState::Done } else { RedriveState::Running };
    conn.prepare_cached(
        "update redrive set state = ?2, finished_at = ?3, moved = moved + ?4, cursor = ?5 \
         where id = ?1",
    )?
    .execute(params![
        id.as_bytes().as_slice(),
        redrive_code(state),
        done.then(|| at.as_millis()),
        int(letters.len() as u64),
        letters.last().map_or(cursor, |(seq, _)| *seq),
    ])?;
    let mut subscriptions: Vec<SubscriptionId> = letters.iter().map(|(_, id)| *id).collect();
    subscriptions.sort_unstable();
    subscriptions.dedup();
    let recall = lanes::recall(writer, &recalls, at)?;
    Ok(Advanced { moved: letters.len(), subscriptions, state, recall })
}

fn next_letters(
    conn: &Connection,
    redrive: &Redrive,
    tenant: i64,
    cursor: i64,
    limit: usize,
) -> Result<Vec<(i64, SubscriptionId)>, Failure> {
    with_filter(redrive, tenant, cursor, |values| {
        let limit = int(limit as u64);
        let values: Vec<&dyn ToSql> =
            values.iter().copied().chain([&limit as &dyn ToSql]).collect();
        let mut statement = conn.prepare_cached(sql::REDRIVABLE)?;
        let mut rows = statement.query(values.as_slice())?;
        let mut letters = Vec::new();
        while let Some(row) = rows.next()? {
            let columns = Columns::of(row, "delivery", 0);
            letters.push((columns.int(0)?, SubscriptionId::from_bytes(columns.array(1)?)));
        }
        Ok(letters)
    })
}

/// The parameters both redrive queries share.
fn with_filter<T>(
    redrive: &Redrive,
    tenant: i64,
    cursor: i64,
    run: impl FnOnce(&[&dyn ToSql]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let filter = &redrive.filter;
    let subscription = filter.subscription.as_ref().map(|id| id.as_bytes().as_slice());
    let reason = filter.reason.map(dead_code);
    let since = filter.since.map(Timestamp::as_millis);
    let until = filter.until.map(Timestamp::as_millis);
    run(&[&tenant, &cursor, &subscription, &reason, &since, &until])
}
