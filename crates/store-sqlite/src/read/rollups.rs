//! Figures of the past.

use posthorn_domain::{RollupCounts, RollupStep, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{Series, SeriesAsk, add_up};
use rusqlite::{Connection, params};

use crate::codec::Columns;
use crate::error::{Corrupt, Failure};
use crate::sql;

/// The last row of a minute that is in its hour.
pub(crate) struct Folded {
    pub(crate) at: i64,
    pub(crate) scope: String,
    pub(crate) node: Vec<u8>,
}

pub(crate) fn folded(conn: &Connection) -> Result<Folded, Failure> {
    let mut statement = conn.prepare_cached("select at, scope, node from folded_rollup")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Folded { at: row.get(0)?, scope: row.get(1)?, node: row.get(2)? })
    };
    Ok(statement.query_row([], read)?)
}

pub(crate) fn counts(columns: &Columns<'_, '_>, column: usize) -> Result<RollupCounts, Corrupt> {
    RollupCounts::from_bytes(&columns.bytes(column)?)
        .ok_or_else(|| columns.corrupt("these are no counts"))
}

/// What was counted of a scope, by time. A look for each step: scopes of one moment are neighbours, which
/// is what writing wants.
pub(crate) fn series(conn: &Connection, ask: &SeriesAsk) -> Result<Series, Failure> {
    let mut rows = Vec::new();
    match ask.step {
        RollupStep::Minute => minutes(conn, ask, None, &mut rows)?,
        RollupStep::Hour => {
            hours(conn, ask, &mut rows)?;
            let folded = folded(conn)?;
            let from = ask.from.max(Timestamp::from_millis(folded.at));
            minutes(conn, &SeriesAsk { from, ..ask.clone() }, Some(&folded), &mut rows)?;
        }
    }
    Ok(add_up(ask.step, rows.into_iter()))
}

/// Rows of minutes; only those after `after`, where it is given.
fn minutes(
    conn: &Connection,
    ask: &SeriesAsk,
    after: Option<&Folded>,
    rows: &mut Vec<(Timestamp, RollupCounts)>,
) -> Result<(), Failure> {
    let Some((from, until)) = overlap(conn, sql::ROLLUP_BOUNDS, ask)? else { return Ok(()) };
    let scope = ask.scope.to_string();
    let mut select = conn.prepare_cached(sql::ROLLUP_MINUTE)?;
    let mut at = RollupStep::Minute.ceil(from);
    while at <= until && at < ask.until {
        let mut found = select.query(params![at.as_millis(), scope])?;
        while let Some(row) = found.next()? {
            let columns = Columns::of(row, "rollup", 0);
            let node = columns.bytes(0)?;
            let key = (at.as_millis(), scope.as_str(), &node[..]);
            if after.is_none_or(|last| key > (last.at, last.scope.as_str(), &last.node[..])) {
                rows.push((at, counts(&columns, 1)?));
            }
        }
        at = at.plus(RollupStep::Minute.span());
    }
    Ok(())
}

fn hours(
    conn: &Connection,
    ask: &SeriesAsk,
    rows: &mut Vec<(Timestamp, RollupCounts)>,
) -> Result<(), Failure> {
    let Some((from, until)) = overlap(conn, sql::ROLLUP_HOUR_BOUNDS, ask)? else { return Ok(()) };
    let scope = ask.scope.to_string();
    let mut select = conn.prepare_cached(sql::ROLLUP_HOUR)?;
    let mut at = RollupStep::Hour.ceil(from);
    while at <= until && at < ask.until {
        let mut found = select.query(params![at.as_millis(), scope])?;
        while let Some(row) = found.next()? {
            rows.push((at, counts(&Columns::of(row, "rollup_hour", 0), 1)?));
        }
        at = at.plus(RollupStep::Hour.span());
    }
    Ok(())
}

/// From the first to the last moment of a table that is asked for, both included: a question about a
/// thousand years costs no more than what there is.
fn overlap(
    conn: &Connection,
    bounds: &str,
    ask: &SeriesAsk,
) -> Result<Option<(Timestamp, Timestamp)>, Failure> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: (Option<i64>, Option<i64>) = conn.prepare_cached(bounds)?.query_row([], read)?;
    let (Some(first), Some(last)) = found else { return Ok(None) };
    let from = ask.from.max(Timestamp::from_millis(first));
    Ok(Some((from, Timestamp::from_millis(last))))
}

/// How many unfinished deliveries each subscription has.
pub(crate) fn pending_by_subscription(
    conn: &Connection,
) -> Result<Vec<(TenantId, SubscriptionId, u64)>, Failure> {
    let mut statement = conn.prepare_cached(sql::PENDING_BY_SUBSCRIPTION)?;
    let mut rows = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "subscription", 1);
        let tenant = TenantId::from_bytes(columns.array(0)?);
        let subscription = SubscriptionId::from_bytes(columns.array(1)?);
        counts.push((tenant, subscription, columns.number(2)?));
    }
    Ok(counts)
}
