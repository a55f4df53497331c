//! Going through a list: candidates from postings, block by block, and the newest rows one by one.

use std::ops::ControlFlow;

use posthorn_store::{Listing, Order, Page, Place};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::places::Places;
use super::{BLOCK, List};
use crate::error::Failure;

/// Rows that one question looks at, at most. What is in the index needs no more than a page and a little.
pub(crate) const ROWS_MAX: usize = 10_000;

/// Which rows of a block may be meant.
pub(crate) enum Terms<'t> {
    /// Those that have one value of each kind; of several kinds, the rarest first.
    All { owner: i64, kinds: Vec<(i64, Vec<i64>)> },
    /// Those of an owner whose kind and value are wanted. Of a stale block all of the owner, when one of these
    /// flags is set.
    Owner { owner: i64, wants: &'t dyn Fn(i64, i64) -> bool, unless: i64 },
}

/// Where a walk goes.
pub(crate) struct Way {
    pub(crate) list: List,
    pub(crate) order: Order,
    /// Rows from the first, up to but without the second.
    pub(crate) rows: (i64, i64),
    /// Nothing before the first, nothing at or after the second.
    pub(crate) times: (i64, i64),
}

impl Way {
    pub(crate) fn new(list: List, listing: &Listing, times: (i64, i64)) -> Self {
        Self { list, order: listing.order, rows: bounds(listing), times }
    }
}

/// The rows a list may go on with: from the first, up to but without the second. Places of other lists, or made
/// up, are rows that may not exist.
pub(crate) fn bounds(listing: &Listing) -> (i64, i64) {
    let after = listing.after.map(row_of);
    match (listing.order, after) {
        (_, None) => (0, i64::MAX),
        (Order::NewestFirst, Some(after)) => (0, after),
        (Order::OldestFirst, Some(after)) => (after.saturating_add(1), i64::MAX),
    }
}

/// The row of a place that a list gave out.
pub(crate) fn row_of(place: Place) -> i64 {
    i64::try_from(place.0).unwrap_or(i64::MAX)
}

/// The place of a row.
pub(crate) fn place_of(row: i64) -> Place {
    Place(u128::from(row.max(0).unsigned_abs()))
}

/// What a visit found.
pub(crate) enum Visit<T> {
    /// It is meant.
    Item(T),
    /// It is not, or there is no such row.
    Other,
}

/// A page in the making.
pub(crate) struct Pages<T> {
    limit: usize,
    items: Vec<T>,
    places: Vec<Place>,
    first: Option<i64>,
    last: Option<i64>,
    more: bool,
    visits: usize,
    stopped_at: Option<i64>,
}

impl<T> Pages<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            items: Vec::new(),
            places: Vec::new(),
            first: None,
            last: None,
            more: false,
            visits: 0,
            stopped_at: None,
        }
    }

    /// Looks at one row. Breaks when the page is full, or enough was looked at.
    pub(crate) fn visit(
        &mut self,
        row: i64,
        look: &mut impl FnMut(i64) -> Result<Visit<T>, Failure>,
    ) -> Result<ControlFlow<()>, Failure> {
        if self.visits >= ROWS_MAX {
            self.more = true;
            return Ok(ControlFlow::Break(()));
        }
        self.visits += 1;
        match look(row)? {
            Visit::Item(_) if self.items.len() == self.limit => {
                self.more = true;
                // What was passed over behind the last item is passed over again.
                self.stopped_at = None;
                return Ok(ControlFlow::Break(()));
            }
            Visit::Item(item) => {
                self.items.push(item);
                self.places.push(place_of(row));
                self.first = self.first.or(Some(row));
                self.last = Some(row);
            }
            Visit::Other => {}
        }
        self.stopped_at = Some(row);
        Ok(ControlFlow::Continue(()))
    }

    /// The page. `time` tells the time of a row, or of the one before it when it is gone.
    pub(crate) fn finish(
        self,
        time: impl FnOnce(i64) -> Result<Option<i64>, Failure>,
    ) -> Result<Page<T>, Failure> {
        // Only a search that gave up has something to say: a page that is full does not.
        let gave_up = self.more.then_some(self.stopped_at).flatten();
        let scanned_until = gave_up.map(time).transpose()?.flatten();
        Ok(Page {
            first: self.first.map(place_of),
            last: gave_up.or(self.last).map(place_of),
            more: self.more,
            scanned_until: scanned_until.map(posthorn_domain::Timestamp::from_millis),
            items: self.items,
            places: self.places,
            looked: self.visits,
        })
    }
}

/// The first row that is in no block.
fn tail(conn: &Connection, list: List) -> Result<i64, Failure> {
    let closed: i64 = conn
        .prepare_cached("select coalesce(max(no) + 1, 0) from block where list = ?1")?
        .query_row([list.code()], |row| row.get(0))?;
    Ok(closed * BLOCK)
}

/// The rows of a way that may be of its times, in its order: each from the first, up to but without the second.
pub(crate) fn ranges(conn: &Connection, way: &Way) -> Result<Vec<(i64, i64)>, Failure> {
    let (from, until) = way.rows;
    if way.times == (i64::MIN, i64::MAX) {
        return Ok(vec![way.rows]);
    }
    let mut statement = conn.prepare_cached(
        "select no from block where list = ?1 and last_at >= ?2 and first_at < ?3 order by no",
    )?;
    let values = [way.list.code(), way.times.0, way.times.1];
    let blocks = statement.query_map(values, |row| row.get::<_, i64>(0))?;
    let mut found: Vec<(i64, i64)> = Vec::new();
    for block in blocks {
        let first = block? * BLOCK;
        match found.last_mut() {
            Some((_, end)) if *end == first => *end += BLOCK,
            _ => found.push((first, first + BLOCK)),
        }
    }
    found.push((tail(conn, way.list)?, i64::MAX));
    let within = found.into_iter().map(|(first, end)| (first.max(from), end.min(until)));
    let mut within: Vec<(i64, i64)> = within.filter(|(first, end)| first < end).collect();
    if way.order == Order::NewestFirst {
        within.reverse();
    }
    Ok(within)
}

/// Visits every row that may be meant, in order.
pub(crate) fn walk<T>(
    conn: &Connection,
    way: &Way,
    terms: &Terms<'_>,
    last_row: i64,
    pages: &mut Pages<T>,
    mut look: impl FnMut(i64) -> Result<Visit<T>, Failure>,
) -> Result<(), Failure> {
    let tail = tail(conn, way.list)?;
    let closed = tail / BLOCK;
    let (from, until) = way.rows;
    let newest = (from.max(tail), until.min(last_row.saturating_add(1)));
    match way.order {
        Order::NewestFirst => {
            for row in (newest.0..newest.1).rev() {
                if pages.visit(row, &mut look)?.is_break() {
                    return Ok(());
                }
            }
            indexed(conn, way, terms, closed, &mut |row| pages.visit(row, &mut look))
        }
        Order::OldestFirst => {
            let mut full = false;
            indexed(conn, way, terms, closed, &mut |row| {
                let flow = pages.visit(row, &mut look)?;
                full = flow.is_break();
                Ok(flow)
            })?;
            for row in newest.0..newest.1 {
                if full || pages.visit(row, &mut look)?.is_break() {
                    return Ok(());
                }
            }
            Ok(())
        }
    }
}

type Step<'s> = dyn FnMut(i64) -> Result<ControlFlow<()>, Failure> + 's;

/// Visits what the postings of indexed blocks name.
fn indexed(
    conn: &Connection,
    way: &Way,
    terms: &Terms<'_>,
    closed: i64,
    step: &mut Step<'_>,
) -> Result<(), Failure> {
    let (from, until) = way.rows;
    let blocks = (from / BLOCK, (until.saturating_sub(1)).div_euclid(BLOCK).min(closed - 1));
    let (sql, values) = driver(way, terms, blocks);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut present: Option<(i64, Places)> = None;
    while let Some(row) = rows.next()? {
        let block: i64 = row.get(0)?;
        if let Some((no, places)) = present.take_if(|(no, _)| *no != block)
            && visit_block(conn, way, terms, no, places, step)?.is_break()
        {
            return Ok(());
        }
        let places = &mut present.get_or_insert((block, Places::NONE)).1;
        if is_wanted(terms, row)? {
            places.add(row.get_ref(2)?.as_blob().unwrap_or_default());
        }
    }
    if let Some((no, places)) = present {
        let _ = visit_block(conn, way, terms, no, places, step)?;
    }
    Ok(())
}

fn is_wanted(terms: &Terms<'_>, row: &Row<'_>) -> Result<bool, Failure> {
    let Terms::Owner { wants, unless, .. } = terms else { return Ok(true) };
    let (stale, kind, value): (i64, i64, i64) = (row.get(1)?, row.get(3)?, row.get(4)?);
    Ok(stale & unless != 0 || wants(kind, value))
}

/// The statement that goes through the blocks: for each block in the range, an entry of the primary key of
/// `posting`.
pub(crate) fn driver(way: &Way, terms: &Terms<'_>, blocks: (i64, i64)) -> (String, Vec<i64>) {
    let mut values = vec![way.list.code(), blocks.0, blocks.1, way.times.0, way.times.1];
    let which = match terms {
        Terms::All { owner, kinds } => {
            let (kind, wanted) = kinds.first().cloned().unwrap_or((super::about::ALL, vec![0]));
            values.extend([*owner, kind]);
            let marks = marks(values.len() + 1, wanted.len());
            values.extend(wanted);
            format!("p.owner = ?6 and p.kind = ?7 and p.value in ({marks})")
        }
        Terms::Owner { owner, .. } => {
            values.push(*owner);
            "p.owner = ?6".to_owned()
        }
    };
    let direction = match way.order {
        Order::NewestFirst => "desc",
        Order::OldestFirst => "asc",
    };
    let sql = format!(
        "select b.no, b.stale, p.places, p.kind, p.value from block b \
         cross join posting p on p.list = ?1 and p.block = b.no and {which} \
         where b.list = ?1 and b.no between ?2 and ?3 and b.last_at >= ?4 and b.first_at < ?5 \
         order by b.no {direction}"
    );
    (sql, values)
}

fn marks(first: usize, number: usize) -> String {
    let marks: Vec<String> = (first..first + number).map(|place| format!("?{place}")).collect();
    marks.join(", ")
}

fn visit_block(
    conn: &Connection,
    way: &Way,
    terms: &Terms<'_>,
    block: i64,
    mut places: Places,
    step: &mut Step<'_>,
) -> Result<ControlFlow<()>, Failure> {
    if let Terms::All { owner, kinds } = terms {
        for (kind, wanted) in kinds.iter().skip(1) {
            if places.is_empty() {
                break;
            }
            places.intersect(&having(conn, way.list, block, *owner, *kind, wanted)?);
        }
    }
    let (from, until) = way.rows;
    let inside = |place: i64| Some(block * BLOCK + place).filter(|row| (from..until).contains(row));
    let mut go = |place: i64| match inside(place) {
        Some(row) => step(row),
        None => Ok(ControlFlow::Continue(())),
    };
    match way.order {
        Order::NewestFirst => {
            for place in places.iter().rev() {
                if go(place)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Order::OldestFirst => {
            for place in places.iter() {
                if go(place)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The rows of a block that have one of these values.
fn having(
    conn: &Connection,
    list: List,
    block: i64,
    owner: i64,
    kind: i64,
    wanted: &[i64],
) -> Result<Places, Failure> {
    let sql = format!(
        "select places from posting where list = ?1 and block = ?2 and owner = ?3 and kind = ?4 \
         and value in ({})",
        marks(5, wanted.len())
    );
    let head = [list.code(), block, owner, kind];
    let values: Vec<&dyn ToSql> =
        head.iter().chain(wanted).map(|value| value as &dyn ToSql).collect();
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(values.as_slice())?;
    let mut places = Places::NONE;
    while let Some(row) = rows.next()? {
        places.add(row.get_ref(0)?.as_blob().unwrap_or_default());
    }
    Ok(places)
}
