//! Cursors: where a list goes on, opaque to clients.
//!
//! Inside: a version, which list it belongs to, and the last item's id or name. A cursor gives no
//! rights, so it needs no signature: whatever it says, a list shows the caller's tenant only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use posthorn_domain::Timestamp;
use posthorn_store::{Listing, Order, Place};

use crate::problem::{Problem, Result};
use crate::query::Query;
use crate::wire::Page;

const VERSION: u8 = 1;
/// Longest cursor worth decoding: a topic's name of 128 bytes, in base 64.
const TEXT_MAX: usize = 200;

/// Which list a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum List {
    Events = 1,
    Topics = 2,
    Subscriptions = 3,
    Deliveries = 4,
    Redrives = 5,
    Tenants = 6,
    Keys = 7,
    Certificates = 8,
    Attempts = 9,
    Jobs = 10,
    Stream = 11,
    Realms = 12,
    EventTypes = 13,
    /// Deliveries in flight, whose places are of their own.
    InFlight = 14,
    Audit = 15,
    Sessions = 16,
}

/// The cursor behind an item.
pub(crate) fn encode(list: List, last: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(2 + last.len());
    bytes.extend_from_slice(&[VERSION, list as u8]);
    bytes.extend_from_slice(last);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a cursor of this list points behind.
pub(crate) fn decode(list: List, text: &str) -> Result<Vec<u8>> {
    if text.len() <= TEXT_MAX
        && let Ok(bytes) = URL_SAFE_NO_PAD.decode(text)
        && let [VERSION, kind, last @ ..] = bytes.as_slice()
        && *kind == list as u8
    {
        return Ok(last.to_vec());
    }
    Err(broken())
}

/// The same, for lists that go by id.
pub(crate) fn decode_id(list: List, text: &str) -> Result<[u8; 16]> {
    decode(list, text)?.try_into().map_err(|_| broken())
}

/// Which part of a list of the log somebody wants. Cursors of such a list lead in both directions, and know the
/// order they were made for.
pub(crate) struct Paging {
    list: List,
    order: Order,
    /// Whether the page before is wanted.
    back: bool,
    after: Option<Place>,
    limit: usize,
}

impl Paging {
    /// From `cursor`, `order` and `limit`.
    pub(crate) fn read(list: List, query: &Query) -> Result<Self> {
        let wanted = match query.text("order") {
            None => None,
            Some("newest") => Some(Order::NewestFirst),
            Some("oldest") => Some(Order::OldestFirst),
            Some(_) => return Err(Problem::field("order", "must be newest or oldest")),
        };
        let limit = query.limit()?;
        let Some(text) = query.text("cursor") else {
            let order = wanted.unwrap_or_default();
            return Ok(Self { list, order, back: false, after: None, limit });
        };
        let [flags, place @ ..]: [u8; 17] = decode(list, text)?.try_into().map_err(|_| broken())?;
        let order = if flags & OLDEST == 0 { Order::NewestFirst } else { Order::OldestFirst };
        if flags > (OLDEST | BACK) {
            return Err(broken());
        }
        if wanted.is_some_and(|wanted| wanted != order) {
            return Err(Problem::field(
                "order",
                "the cursor was made for the other order; leave `order` out",
            ));
        }
        let after = Some(Place(u128::from_be_bytes(place)));
        Ok(Self { list, order, back: flags & BACK != 0, after, limit })
    }

    /// What the store is asked.
    pub(crate) fn listing(&self) -> Listing {
        let order = if self.back { self.order.reversed() } else { self.order };
        Listing { order, after: self.after, limit: self.limit }
    }

    /// A page as it is shown: always in the order of the list, with the cursors of both directions.
    pub(crate) fn show<T>(&self, mut page: posthorn_store::Page<T>) -> Shown<T> {
        let (first, last) = if self.back {
            page.items.reverse();
            (page.last, page.first)
        } else {
            (page.first, page.last)
        };
        // Whoever came from somewhere can go back there.
        let (before, after) =
            if self.back { (page.more, true) } else { (self.after.is_some(), page.more) };
        Shown {
            items: page.items,
            next: last.filter(|_| after).map(|place| self.cursor(false, place)),
            previous: first.filter(|_| before).map(|place| self.cursor(true, place)),
            scanned_until: page.scanned_until,
        }
    }

    fn cursor(&self, back: bool, place: Place) -> String {
        let order = if self.order == Order::OldestFirst { OLDEST } else { 0 };
        let flags = order | if back { BACK } else { 0 };
        let mut bytes = vec![flags];
        bytes.extend_from_slice(&place.0.to_be_bytes());
        encode(self.list, &bytes)
    }
}

const OLDEST: u8 = 1;
const BACK: u8 = 2;

/// A page of a list of the log.
pub(crate) struct Shown<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
    pub(crate) previous: Option<String>,
    pub(crate) scanned_until: Option<Timestamp>,
}

impl<T> Shown<T> {
    /// The same with other items.
    pub(crate) fn page<U>(self, items: Vec<U>) -> Page<U> {
        let Self { next, previous, scanned_until, .. } = self;
        Page { items, next, previous, scanned_until }
    }
}

fn broken() -> Problem {
    Problem::field(
        "cursor",
        "not a cursor of this list; use the value of `next` or `previous` unchanged",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_of_the_log_lead_in_both_directions() {
        let read = |text: &str| {
            Paging::read(List::Events, &Query::parse(Some(text), &["order", "cursor", "limit"])?)
        };
        let start = read("order=oldest&limit=2").expect("proper");
        assert_eq!((start.listing().order, start.listing().after), (Order::OldestFirst, None));
        let page = posthorn_store::Page {
            items: vec!['a', 'b'],
            first: Some(Place(1)),
            last: Some(Place(2)),
            more: true,
            ..posthorn_store::Page::empty()
        };
        let shown = start.show(page);
        assert_eq!((shown.items, shown.previous.is_none()), (vec!['a', 'b'], true));
        let next = shown.next.expect("there is more");
        let on = read(&format!("cursor={next}&limit=2")).expect("proper");
        assert_eq!(on.listing().order, Order::OldestFirst);
        assert_eq!(on.listing().after, Some(Place(2)));
        let last = posthorn_store::Page {
            items: vec!['c'],
            first: Some(Place(3)),
            last: Some(Place(3)),
            more: false,
            ..posthorn_store::Page::empty()
        };
        let shown = on.show(last);
        assert!(shown.next.is_none());
        let back = read(&format!("cursor={}", shown.previous.expect("it came from there")))
            .expect("proper");
        assert_eq!(
            (back.listing().order, back.listing().after),
            (Order::NewestFirst, Some(Place(3)))
        );
        let page = posthorn_store::Page {
            items: vec!['b', 'a'],
            first: Some(Place(2)),
            last: Some(Place(1)),
            more: false,
            ..posthorn_store::Page::empty()
        };
        let shown = back.show(page);
        assert_eq!((shown.items, shown.previous.is_none()), (vec!['a', 'b'], true));
        assert_eq!(shown.next.as_deref(), Some(next.as_str()));
        for bad in [
            format!("cursor={next}&order=newest"),
            "order=up".into(),
            format!("cursor={}", &next[1..]),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cursors_come_back_and_belong_to_one_list() {
        let text = encode(List::Events, &[7; 16]);
        assert_eq!(decode_id(List::Events, &text).expect("it is one"), [7; 16]);
        for bad in ["", "x", "AQ", "!!!!", &text[1..], &text[..5], &"A".repeat(4_000)] {
            assert!(decode_id(List::Events, bad).is_err(), "{bad}");
        }
        assert!(decode_id(List::Deliveries, &text).is_err());
        assert!(decode_id(List::Events, &encode(List::Events, &[7; 15])).is_err());
    }
}
