//! Pages out of streams: what is merged, what is shown, and when a search has gone on for long enough.

use std::collections::HashMap;
use std::ops::ControlFlow;

use deadpool_postgres::Object;
use posthorn_domain::Timestamp;
use posthorn_store::{Listing, Order, Page, Place};

use crate::codec::limit;
use crate::failure::Outcome;

/// Rows that one question looks at in vain before it stops.
const IN_VAIN_MAX: usize = 5_000;
/// Rows that are asked for at once, over all streams.
const CHUNK_MAX: usize = 1_000;
/// By how much that grows from one look to the next.
const GROWTH: usize = 4;
/// So many streams are few.
const FEW: usize = 4;
/// Rows that each of many streams is asked for at least, as far as all of them together stay below [`CHUNK_MAX`]: a
/// round trip costs more.
const EACH_MIN: usize = 8;

/// A row that was looked at.
pub(crate) struct Seen<T> {
    /// Of which stream. Only equality matters.
    pub(crate) stream: i32,
    pub(crate) place: u128,
    pub(crate) time: i64,
    /// Absent when it is not meant.
    pub(crate) item: Option<T>,
}

/// What is still to be looked at: places between these two, without them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) order: Order,
    pub(crate) low: u128,
    pub(crate) high: u128,
}

impl Range {
    pub(crate) fn new(listing: &Listing, (low, high): (u128, u128)) -> Self {
        let mut range = Self { order: listing.order, low, high };
        if let Some(Place(after)) = listing.after {
            range.go_on(after);
        }
        range
    }

    /// What comes after a place.
    fn go_on(&mut self, after: u128) {
        match self.order {
            Order::NewestFirst => self.high = self.high.min(after),
            Order::OldestFirst => self.low = self.low.max(after),
        }
    }

    fn sort<T>(&self, rows: &mut [Seen<T>]) {
        rows.sort_by_key(|row| match self.order {
            Order::NewestFirst => u128::MAX - row.place,
            Order::OldestFirst => row.place,
        });
    }

    /// Whether `place` comes after `other`.
    fn is_beyond(&self, place: u128, other: u128) -> bool {
        match self.order {
            Order::NewestFirst => place < other,
            Order::OldestFirst => place > other,
        }
    }
}

/// Where rows come from.
pub(crate) trait Source: Sync {
    type Item: Send;

    /// How many streams there are.
    fn streams(&self) -> usize;

    /// The next rows of every stream, `each` at most, in any order.
    fn look(
        &self,
        client: &Object,
        range: Range,
        each: i64,
    ) -> impl Future<Output = Outcome<Vec<Seen<Self::Item>>>> + Send;
}

/// How many rows each stream is asked for. Of a few, any may have all that is wanted; of many, hardly one.
fn each(want: usize, streams: usize) -> usize {
    match streams {
        0..=FEW => want,
        many => want.min((2 * want / many).max(EACH_MIN)).min((CHUNK_MAX / many).max(1)),
    }
}

/// A page of what the streams of a source have in a range.
pub(crate) async fn walk<S: Source>(
    client: &Object,
    source: &S,
    listing: &Listing,
    mut range: Range,
) -> Outcome<Page<S::Item>> {
    let mut pages = Pages::new(listing.limit);
    let mut want = listing.limit.saturating_add(1).min(CHUNK_MAX);
    if source.streams() == 0 {
        return Ok(pages.finish());
    }
    loop {
        let each = each(want, source.streams());
        let rows = source.look(client, range, limit(each)).await?;
        match pages.take(rows, range, each) {
            Some(horizon) => range.go_on(horizon),
            None => return Ok(pages.finish()),
        }
        want = (want * GROWTH).min(CHUNK_MAX);
    }
}

/// A page of what was found all at once.
pub(crate) fn page_of<T>(mut rows: Vec<Seen<T>>, listing: &Listing, range: Range) -> Page<T> {
    rows.retain(|row| range.low < row.place && row.place < range.high);
    let mut pages = Pages::new(listing.limit);
    pages.take(rows, range, usize::MAX);
    pages.finish()
}

/// A page in the making.
struct Pages<T> {
    limit: usize,
    items: Vec<T>,
    places: Vec<Place>,
    first: Option<u128>,
    last: Option<u128>,
    more: bool,
    in_vain: usize,
    scanned_until: Option<Timestamp>,
}

impl<T> Pages<T> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            items: Vec::new(),
            places: Vec::new(),
            first: None,
            last: None,
            more: false,
            in_vain: 0,
            scanned_until: None,
        }
    }

    /// Takes in rows of which every stream gave `each` at most. Where to go on, unless the page is done.
    ///
    /// A stream that gave as many as it may has more to give behind its last row. So only what comes
    /// before all such rows is known to be complete.
    fn take(&mut self, mut rows: Vec<Seen<T>>, range: Range, each: usize) -> Option<u128> {
        range.sort(&mut rows);
        let mut streams: HashMap<i32, (usize, u128)> = HashMap::new();
        for row in &rows {
            let (number, last) = streams.entry(row.stream).or_insert((0, row.place));
            *number += 1;
            *last = row.place;
        }
        let unfinished = streams.into_values().filter(|(number, _)| *number >= each);
        let horizon = unfinished
            .map(|(_, last)| last)
            .reduce(|nearest, last| if range.is_beyond(nearest, last) { last } else { nearest });
        rows.dedup_by_key(|row| row.place);
        for row in rows {
            if horizon.is_some_and(|horizon| range.is_beyond(row.place, horizon)) {
                break;
            }
            if self.visit(row).is_break() {
                return None;
            }
        }
        horizon
    }

    fn visit(&mut self, row: Seen<T>) -> ControlFlow<()> {
        match row.item {
            Some(_) if self.items.len() >= self.limit => {
                self.more = true;
                return ControlFlow::Break(());
            }
            Some(item) => {
                self.items.push(item);
                self.places.push(Place(row.place));
                self.first.get_or_insert(row.place);
                self.last = Some(row.place);
            }
            None => {
                self.in_vain += 1;
                if self.in_vain >= IN_VAIN_MAX {
                    self.more = true;
                    self.last = Some(row.place);
                    self.scanned_until = Some(Timestamp::from_millis(row.time));
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(self) -> Page<T> {
        Page {
            looked: self.items.len() + self.in_vain,
            items: self.items,
            places: self.places,
            first: self.first.map(Place),
            last: self.last.map(Place),
            more: self.more,
            scanned_until: self.scanned_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stream: i32, place: u128) -> Seen<u128> {
        Seen { stream, place, time: 0, item: Some(place) }
    }

    fn range(order: Order) -> Range {
        Range { order, low: 0, high: u128::MAX }
    }

    #[test]
    fn only_what_all_streams_have_given_is_shown() {
        let mut pages = Pages::new(10);
        // The first stream may have more below 7; the second is at its end.
        let rows = vec![row(1, 9), row(1, 7), row(2, 4)];
        assert_eq!(pages.take(rows, range(Order::NewestFirst), 2), Some(7));
        assert_eq!(pages.items, [9, 7]);
        let mut pages = Pages::new(10);
        let rows = vec![row(1, 1), row(1, 5), row(2, 2), row(2, 3)];
        assert_eq!(pages.take(rows, range(Order::OldestFirst), 2), Some(3));
        assert_eq!(pages.items, [1, 2, 3]);
    }

    #[test]
    fn many_streams_together_are_asked_for_a_bounded_number_of_rows() {
        for want in [1, 51, 204, CHUNK_MAX] {
            for streams in [5, 10, 100, 125, 500, 1_000] {
                let each = each(want, streams);
                assert!((1..=want).contains(&each), "{want} of {streams}: {each}");
                assert!(each * streams <= CHUNK_MAX, "{want} of {streams}: {each}");
            }
            // One of each is the least.
            assert_eq!(each(want, 10_000), 1);
        }
        assert_eq!((each(51, 3), each(51, 20)), (51, 8));
    }

    #[test]
    fn a_full_page_says_that_more_follow() {
        let mut pages = Pages::new(2);
        let rows = vec![row(1, 1), row(1, 2), row(1, 3)];
        assert_eq!(pages.take(rows, range(Order::NewestFirst), 5), None);
        let page = pages.finish();
        assert_eq!((page.items, page.more), (vec![3, 2], true));
        assert_eq!((page.first, page.last), (Some(Place(3)), Some(Place(2))));
    }

    #[test]
    fn a_search_in_vain_stops_and_says_where() {
        let mut pages: Pages<u128> = Pages::new(2);
        let blank = |place: u128| Seen { stream: 1, place, time: 7, item: None };
        let rows = (1..=IN_VAIN_MAX as u128 + 5).map(blank).collect();
        assert_eq!(pages.take(rows, range(Order::OldestFirst), usize::MAX), None);
        let page = pages.finish();
        assert!(page.more && page.items.is_empty());
        assert_eq!(page.last, Some(Place(IN_VAIN_MAX as u128)));
        assert_eq!(page.scanned_until, Some(Timestamp::from_millis(7)));
    }
}
