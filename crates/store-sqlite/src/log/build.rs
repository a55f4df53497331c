//! Postings of one block, from its rows.

use std::collections::HashMap;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::{BLOCK, List, NO_OUTCOME, OPEN, about, hash, places};
use crate::error::Failure;

/// The events of a block; nothing of their payloads is read.
pub(crate) const EVENTS: &str = "select no, accepted_at, tenant, topic, event_type, key, publisher_id, \
    deliveries from event where no >= ?1 and no < ?2 order by no";

/// The deliveries of a block. When they were created is when their events were accepted; see [`times_of`].
pub(crate) const DELIVERIES: &str = "select seq, event, tenant, subscription, state, outcome from delivery \
    where seq >= ?1 and seq < ?2 order by seq";

/// The first and the last time in the indexed blocks of events from one to another.
pub(crate) const TIMES_OF_BLOCKS: &str =
    "select min(first_at), max(last_at) from block where list = 1 and no between ?1 and ?2";

/// The same of events that are in no block yet.
pub(crate) const TIMES_OF_EVENTS: &str =
    "select min(accepted_at), max(accepted_at) from event where no between ?1 and ?2";

/// The attempts of a block, each with its subscription.
pub(crate) const ATTEMPTS: &str = "select a.no, a.started_at, s.tenant, a.subscription, a.manual, a.status, \
    a.failure from attempt a cross join subscription s on s.no = a.subscription \
    where a.no >= ?1 and a.no < ?2 order by a.no";

/// Whose, about what, and which value.
type Term = (i64, i64, i64);

/// All postings of a block.
pub(crate) struct Postings {
    pub(crate) list: List,
    pub(crate) block: i64,
    /// The first and the last time in it; `None` when it has no rows.
    pub(crate) times: Option<(i64, i64)>,
    /// In the order in which they are stored.
    pub(crate) terms: Vec<(Term, Vec<u8>)>,
}

#[derive(Default)]
struct Gathering {
    times: Option<(i64, i64)>,
    terms: HashMap<Term, Vec<u16>>,
}

impl Gathering {
    fn add(&mut self, term: Term, place: u16) {
        self.terms.entry(term).or_default().push(place);
    }

    fn time(&mut self, at: i64) {
        self.times = Some(match self.times {
            None => (at, at),
            Some((first, last)) => (first.min(at), last.max(at)),
        });
    }
}

/// Gathers what postings need of one row.
type Add = fn(&Row<'_>, &mut Gathering, u16) -> rusqlite::Result<()>;

/// Reads a block.
pub(crate) fn build(conn: &Connection, list: List, block: i64) -> Result<Postings, Failure> {
    let (sql, add): (&str, Add) = match list {
        List::Events => (EVENTS, event),
        List::Deliveries => (DELIVERIES, delivery),
        List::Attempts => (ATTEMPTS, attempt),
    };
    let first = block * BLOCK;
    let mut gathering = Gathering::default();
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![first, first + BLOCK])?;
    while let Some(row) = rows.next()? {
        let place = u16::try_from(row.get::<_, i64>(0)? - first).unwrap_or_default();
        gathering.time(row.get(1)?);
        add(row, &mut gathering, place)?;
    }
    if list == List::Deliveries
        && let Some((first, last)) = gathering.times
    {
        gathering.times = Some(times_of(conn, first, last)?);
    }
    let terms = gathering.terms.into_iter();
    let mut terms: Vec<_> = terms.map(|(term, list)| (term, places::encode(&list))).collect();
    terms.sort_unstable_by_key(|(term, _)| *term);
    Ok(Postings { list, block, times: gathering.times, terms })
}

/// A time before, and one after, everything from one event to another. Reading each event would touch as many pages as
/// everything else together, so whole blocks of them have to do: a block of deliveries may seem to last a little longer
/// than it does.
fn times_of(conn: &Connection, first: i64, last: i64) -> Result<(i64, i64), Failure> {
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
    let closed: i64 = conn
        .prepare_cached("select coalesce(max(no) + 1, 0) from block where list = 1")?
        .query_row([], |row| row.get(0))?;
    let (from, until) = (super::block_of(first), super::block_of(last).min(closed - 1));
    let blocks = conn.prepare_cached(TIMES_OF_BLOCKS)?.query_row([from, until], read)?;
    let newest = (first.max(closed * BLOCK), last);
    let rows = conn.prepare_cached(TIMES_OF_EVENTS)?.query_row([newest.0, newest.1], read)?;
    let begin = [blocks.0, rows.0].into_iter().flatten().min();
    let end = [blocks.1, rows.1].into_iter().flatten().max();
    Ok((begin.unwrap_or(i64::MIN), end.unwrap_or(i64::MAX)))
}

/// The number of a text; `None` for null.
fn hashed(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Text(text) => Some(hash(text)),
        _ => None,
    }
}

fn event(row: &Row<'_>, gathering: &mut Gathering, place: u16) -> rusqlite::Result<()> {
    let tenant: i64 = row.get(2)?;
    gathering.add((tenant, about::ALL, 0), place);
    let texts = [(3, about::TOPIC), (4, about::TYPE), (5, about::KEY), (6, about::PUBLISHER_ID)];
    for (column, kind) in texts {
        if let Some(value) = hashed(row.get_ref(column)?) {
            gathering.add((tenant, kind, value), place);
        }
    }
    if row.get::<_, i64>(7)? == 0 {
        gathering.add((tenant, about::UNWANTED, 0), place);
    }
    Ok(())
}

fn delivery(row: &Row<'_>, gathering: &mut Gathering, place: u16) -> rusqlite::Result<()> {
    let (tenant, subscription): (i64, i64) = (row.get(2)?, row.get(3)?);
    let state = match row.get(4)? {
        0 | 1 => OPEN,
        ended => ended,
    };
    let outcome = row.get::<_, Option<i64>>(5)?.unwrap_or(NO_OUTCOME);
    gathering.add((tenant, state, outcome), place);
    gathering.add((-subscription, state, outcome), place);
    Ok(())
}

fn attempt(row: &Row<'_>, gathering: &mut Gathering, place: u16) -> rusqlite::Result<()> {
    let (tenant, subscription, manual): (i64, i64, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let outcome = match row.get::<_, Option<i64>>(5)? {
        Some(status) => status,
        None => failure(row.get_ref(6)?),
    };
    gathering.add((tenant, manual, outcome), place);
    gathering.add((-subscription, manual, outcome), place);
    Ok(())
}

/// The number of the outcome that a failure is.
pub(crate) fn failure(value: ValueRef<'_>) -> i64 {
    let code = value.as_str_or_null().ok().flatten();
    let code = code.and_then(posthorn_domain::FailureCode::parse);
    code.map_or(NO_OUTCOME, |code| posthorn_domain::Outcome::Failure(code).code().into())
}
