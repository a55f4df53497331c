//! Following the log. Rows have numbers in the order of their commits, so that what was read stays behind.

use std::collections::HashMap;

use posthorn_domain::{Event, TenantId};
use posthorn_store::{AttemptMade, FollowAsk, Followed, FollowedItem, Place};
use rusqlite::{Connection, Row};

use super::{lists, queries, rows};
use crate::codec::{Columns, int, state_of};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Rows that are looked at in one go, whosever they are.
const LOOKS_MAX: usize = 5_000;

/// Events of some tenants, after a place.
pub(crate) fn events(conn: &Connection, ask: &FollowAsk) -> Result<Followed<Event>, Failure> {
    let event = |no: i64| {
        let mut statement = conn.prepare_cached(sql::EVENT_BY_NO)?;
        let mut rows = statement.query([no])?;
        Ok(match rows.next()? {
            Some(row) => Some(rows::event(row)?),
            None => None,
        })
    };
    follow(conn, ask, (sql::EVENTS_END, sql::EVENTS_AFTER), event)
}

/// Attempts of some tenants, after a place.
pub(crate) fn attempts(
    conn: &Connection,
    ask: &FollowAsk,
) -> Result<Followed<AttemptMade>, Failure> {
    let attempt = |no: i64| {
        let mut statement = conn.prepare_cached(sql::ATTEMPT_MADE)?;
        let mut rows = statement.query([no])?;
        Ok(match rows.next()? {
            Some(row) => Some(made(row)?),
            None => None,
        })
    };
    follow(conn, ask, (sql::ATTEMPTS_END, sql::ATTEMPTS_AFTER), attempt)
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
    (end, after): (&str, &str),
    read: impl Fn(i64) -> Result<Option<T>, Failure>,
) -> Result<Followed<T>, Failure> {
    let Some(Place(from)) = ask.after else {
        let end: i64 = conn.prepare_cached(end)?.query_row([], |row| row.get(0))?;
        return Ok(Followed { items: Vec::new(), last: place(end), more: false });
    };
    // A place that nobody has given out may be any number.
    let mut last = i64::try_from(from).unwrap_or(i64::MAX);
    let mut owners: HashMap<i64, TenantId> = HashMap::new();
    for tenant in &ask.tenants {
        if let Some(no) = queries::tenant_no(conn, *tenant)? {
            owners.insert(no, *tenant);
        }
    }
    let (mut items, mut looked) = (Vec::new(), 0);
    let mut statement = conn.prepare_cached(after)?;
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
    Ok(Followed { items, last: place(last), more })
}

fn place(no: i64) -> Place {
    Place(u128::from(no.max(0).unsigned_abs()))
}
