//! Following the log. Rows have numbers in the order of their commits, so that what was read stays behind.

use std::collections::HashMap;

use posthorn_domain::{TenantId, Timestamp};
use posthorn_store::{AttemptMade, EventLine, FollowAsk, Followed, FollowedItem, LogPlace};
use rusqlite::{Connection, Row};

use super::{lists, queries, rows};
use crate::codec::{Columns, int, state_of};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Rows that are looked at in one go, whosever they are.
const LOOKS_MAX: usize = 5_000;

/// What a log is read by.
struct Log {
    end: &'static str,
    after: &'static str,
    from: &'static str,
}

const EVENTS: Log = Log { end: sql::EVENTS_END, after: sql::EVENTS_AFTER, from: sql::EVENT_FROM };
const ATTEMPTS: Log =
    Log { end: sql::ATTEMPTS_END, after: sql::ATTEMPTS_AFTER, from: sql::ATTEMPT_FROM };

/// Events of some tenants, after a place.
pub(crate) fn events(conn: &Connection, ask: &FollowAsk) -> Result<Followed<EventLine>, Failure> {
    follow(conn, ask, &EVENTS, |no| rows::event_line(conn, no).map(Some))
}

/// Attempts of some tenants, after a place.
pub(crate) fn attempts(
    conn: &Connection,
    ask: &FollowAsk,
) -> Result<Followed<AttemptMade>, Failure> {
    follow(conn, ask, &ATTEMPTS, |no| {
        let mut statement = conn.prepare_cached(sql::ATTEMPT_MADE)?;
        let mut rows = statement.query([no])?;
        Ok(match rows.next()? {
            Some(row) => Some(made(row)?),
            None => None,
        })
    })
}

fn made(row: &Row<'_>) -> Result<AttemptMade, Corrupt> {
    let columns = Columns::of(row, "attempt", 0);
    let state = columns.int(16)?;
    let state = state_of(state)
        .ok_or_else(|| columns.corrupt(format_args!("there is no state {state}")))?;
    Ok(AttemptMade { line: lists::line(row)?, state })
}

fn follow<T>(
    conn: &Connection,
    ask: &FollowAsk,
    log: &Log,
    read: impl Fn(i64) -> Result<Option<T>, Failure>,
) -> Result<Followed<T>, Failure> {
    let Some(from) = ask.after else {
        let end: i64 = conn.prepare_cached(log.end)?.query_row([], |row| row.get(0))?;
        return Ok(Followed { items: Vec::new(), last: place(end), more: false, skipped: false });
    };
    // A place that nobody has given out may be any number.
    let from = if from.commit > 0 { u128::MAX } else { from.row };
    let mut last = i64::try_from(from).unwrap_or(i64::MAX);
    let passed = match ask.since {
        Some(since) => first_since(conn, log, last, since)?,
        None => None,
    };
    last = passed.unwrap_or(last);
    let mut owners: HashMap<i64, TenantId> = HashMap::new();
    for tenant in &ask.tenants {
        if let Some(no) = queries::tenant_no(conn, *tenant)? {
            owners.insert(no, *tenant);
        }
    }
    let (mut items, mut looked) = (Vec::new(), 0);
    let mut statement = conn.prepare_cached(log.after)?;
    let mut found = statement.query([last, int(LOOKS_MAX as u64)])?;
    while items.len() < ask.limit
        && let Some(row) = found.next()?
    {
        looked += 1;
        last = row.get(0)?;
        if let Some(tenant) = owners.get(&row.get(1)?)
            && let Some(item) = read(last)?
        {
            items.push(FollowedItem { tenant: *tenant, place: place(last), item });
        }
    }
    let more = looked >= LOOKS_MAX || items.len() >= ask.limit;
    Ok(Followed { items, last: place(last), more, skipped: passed.is_some() })
}

/// The place before the first row of a time, where the row after `last` is older. Numbers rise with time, more or
/// less: so it is searched for by halves.
fn first_since(
    conn: &Connection,
    log: &Log,
    last: i64,
    since: Timestamp,
) -> Result<Option<i64>, Failure> {
    let mut statement = conn.prepare_cached(log.from)?;
    // The row from a number on, if it is older.
    let mut older = |no: i64| -> Result<Option<i64>, Failure> {
        let mut rows = statement.query([no])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let at: i64 = row.get(1)?;
        Ok(if at < since.as_millis() { Some(row.get(0)?) } else { None })
    };
    let Some(mut low) = older(last.saturating_add(1))? else { return Ok(None) };
    let mut high: i64 = conn.prepare_cached(log.end)?.query_row([], |row| row.get(0))?;
    while low < high {
        // Above `low`, and at most `high`.
        let middle = low + (high - low + 1) / 2;
        match older(middle)? {
            Some(no) => low = no.min(high),
            None => high = middle - 1,
        }
    }
    Ok(Some(low))
}

fn place(no: i64) -> LogPlace {
    LogPlace { commit: 0, row: u128::from(no.max(0).unsigned_abs()) }
}
