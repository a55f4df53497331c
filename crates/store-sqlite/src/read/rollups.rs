//! Figures of the past.

use posthorn_domain::{
    RollupCounts, RollupScope, RollupStep, Span, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Series, SeriesAsk, Summing, Sums, SumsAsk, add_up};
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
    let Some((from, until)) = overlap(conn, sql::ROLLUP_BOUNDS, ask.from)? else { return Ok(()) };
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
    let Some((from, until)) = overlap(conn, sql::ROLLUP_HOUR_BOUNDS, ask.from)? else {
        return Ok(());
    };
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
    from: Timestamp,
) -> Result<Option<(Timestamp, Timestamp)>, Failure> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: (Option<i64>, Option<i64>) = conn.prepare_cached(bounds)?.query_row([], read)?;
    let (Some(first), Some(last)) = found else { return Ok(None) };
    let from = from.max(Timestamp::from_millis(first));
    Ok(Some((from, Timestamp::from_millis(last))))
}

/// What many scopes come to: a range of neighbours for each step, the newest first.
pub(crate) fn sums(conn: &Connection, ask: &SumsAsk) -> Result<Sums, Failure> {
    let mut summing = Summing::new(ask);
    let whole = match ask.step {
        RollupStep::Minute => kind_minutes(conn, ask, None, &mut summing)?,
        RollupStep::Hour => {
            let folded = folded(conn)?;
            kind_minutes(conn, ask, Some(&folded), &mut summing)?
                && kind_hours(conn, ask, &mut summing)?
        }
    };
    if whole {
        summing.reached(ask.from);
    }
    Ok(summing.done())
}

fn scope(columns: &Columns<'_, '_>) -> Result<RollupScope, Corrupt> {
    columns.text(0)?.parse().map_err(|_| columns.corrupt("this is no scope"))
}

/// Whether all that was asked for was looked at.
fn kind_minutes(
    conn: &Connection,
    ask: &SumsAsk,
    after: Option<&Folded>,
    summing: &mut Summing,
) -> Result<bool, Failure> {
    let from = after.map_or(ask.from, |after| ask.from.max(Timestamp::from_millis(after.at)));
    let Some((from, last)) = overlap(conn, sql::ROLLUP_BOUNDS, from)? else { return Ok(true) };
    let (first, beyond) = ask.kind.bounds();
    let mut select = conn.prepare_cached(sql::ROLLUP_KIND_MINUTE)?;
    for at in newest_first(RollupStep::Minute, from, last, ask.until) {
        if !summing.goes_on() {
            return Ok(false);
        }
        let mut found = select.query(params![at.as_millis(), first, beyond])?;
        while let Some(row) = found.next()? {
            let columns = Columns::of(row, "rollup", 0);
            let (text, node) = (columns.text(0)?, columns.bytes(1)?);
            let key = (at.as_millis(), text, &node[..]);
            if after.is_none_or(|last| key > (last.at, last.scope.as_str(), &last.node[..])) {
                summing.add(at, scope(&columns)?, &counts(&columns, 2)?);
            }
        }
        summing.reached(at);
    }
    Ok(true)
}

fn kind_hours(conn: &Connection, ask: &SumsAsk, summing: &mut Summing) -> Result<bool, Failure> {
    let found = overlap(conn, sql::ROLLUP_HOUR_BOUNDS, ask.from)?;
    let Some((from, last)) = found else { return Ok(true) };
    let (first, beyond) = ask.kind.bounds();
    let mut select = conn.prepare_cached(sql::ROLLUP_KIND_HOUR)?;
    for at in newest_first(RollupStep::Hour, from, last, ask.until) {
        if !summing.goes_on() {
            return Ok(false);
        }
        let mut found = select.query(params![at.as_millis(), first, beyond])?;
        while let Some(row) = found.next()? {
            let columns = Columns::of(row, "rollup_hour", 0);
            summing.add(at, scope(&columns)?, &counts(&columns, 1)?);
        }
        summing.reached(at);
    }
    Ok(true)
}

/// The steps from `from` to `last`, before `until`.
fn newest_first(
    step: RollupStep,
    from: Timestamp,
    last: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let first = step.ceil(from);
    let newest = step.floor(last.min(until.minus(Span::from_millis(1))));
    let back = move |at: &Timestamp| Some(at.minus(step.span()));
    std::iter::successors(Some(newest), back).take_while(move |at| *at >= first)
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
