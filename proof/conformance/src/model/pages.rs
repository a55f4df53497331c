//! Lists of the model, cut into pages.

use posthorn_domain::Timestamp;
use posthorn_store::{Listing, Order, Page, Place};

pub(super) fn page<T>(mut found: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let items: Vec<T> = found.by_ref().take(limit).collect();
    Page { items, more: found.next().is_some(), ..Page::empty() }
}

/// Rows that one question looks at in vain before it stops.
const IN_VAIN_MAX: usize = 5_000;

/// A part of a list that is searched row by row: everything, each with its place, its time, and whether it is meant.
pub(super) fn searched<T>(all: Vec<(u128, Timestamp, Option<T>)>, listing: &Listing) -> Page<T> {
    let every = Listing { limit: usize::MAX, ..*listing };
    let placed = all.into_iter().map(|(place, time, item)| (place, (time, item))).collect();
    let rows = listed(placed, &every);
    let mut page = Page::empty();
    for ((time, item), place) in rows.items.into_iter().zip(rows.places) {
        if item.is_some() && page.items.len() == listing.limit {
            page.more = true;
            break;
        }
        page.looked += 1;
        if let Some(item) = item {
            page.items.push(item);
            page.places.push(place);
            page.last = Some(place);
        } else if page.looked - page.items.len() == IN_VAIN_MAX {
            (page.more, page.last, page.scanned_until) = (true, Some(place), Some(time));
            break;
        }
    }
    page.first = page.places.first().copied();
    page
}

/// A part of a list: what is meant, each with its place.
pub(super) fn listed<T>(mut all: Vec<(u128, T)>, listing: &Listing) -> Page<T> {
    all.sort_by_key(|(place, _)| *place);
    if listing.order == Order::NewestFirst {
        all.reverse();
    }
    let is_after = |place: u128| match (listing.after, listing.order) {
        (None, _) => true,
        (Some(after), Order::NewestFirst) => place < after.0,
        (Some(after), Order::OldestFirst) => place > after.0,
    };
    all.retain(|(place, _)| is_after(*place));
    let more = all.len() > listing.limit;
    all.truncate(listing.limit);
    let (places, items): (Vec<Place>, Vec<T>) =
        all.into_iter().map(|(place, item)| (Place(place), item)).unzip();
    let (first, last, looked) = (places.first().copied(), places.last().copied(), items.len());
    Page { items, places, first, last, more, scanned_until: None, looked }
}
