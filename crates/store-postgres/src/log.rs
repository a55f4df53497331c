//! The log: lists of events, deliveries and attempts, in pages.
//!
//! # Theory of operation
//! A list is one or more *streams*: ranges of an index that have the wanted order. Where several values are
//! meant (states, types, subscriptions), each has a stream of its own; a statement reads the next few rows of
//! every stream, and [`pages`] merges them. So nothing is ever sorted that is not shown. Values that a
//! question does not name, such as the types of a topic, are found by skipping through the index, one probe
//! for each. Topic and type are one number there ([`kinds`]).
//!
//! What the index does not know is checked row by row: every row is looked at again before it is shown. When
//! too many are looked at in vain, a page ends early and says how far it came.
//!
//! * **Events** go by id. **Deliveries** go by id as well, so that those that have not ended and those that
//!   have can be merged. Their ids tell when they were made, so a period is a range of ids, give or take what
//!   the table `skew` says. A delivery that a job makes has the time of its event: for deliveries of a tenant that
//!   has such ones the range reaches as far beyond the period as one was ever late, and at most to the last one
//!   (`replayed`).
//! * **Attempts** go by the time at which they began and then by a number from a sequence.
//!
//! # Which indexes
//! Each entry of an index is paid for by the hot path, so there is only one more for each event
//! (`event_kind`), one for each delivery that is stored or tried again (`delivery_live_place`) and two for each
//! attempt (`attempt_place`, `attempt_place_to`). All others leave out what goes well: failures, dead letters,
//! what was asked for by hand, and what publishers may leave away. So what went well is found by its owner and
//! then row by row: `delivered` of a tenant that has little of it, or one answer of those between 200 and 299.
//!
//! # What it must not know
//! When anything is delivered, and who asks.

pub(crate) mod attempts;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod kinds;
pub(crate) mod pages;

use deadpool_postgres::Object;
use posthorn_domain::{EventId, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{Order, OutcomeFilter, Period};

use crate::codec::{Reader, Uid};
use crate::failure::Outcome;
use crate::session::query;
use crate::sql;

/// How SQL calls an order.
const fn direction(order: Order) -> &'static str {
    match order {
        Order::NewestFirst => "desc",
        Order::OldestFirst => "asc",
    }
}

/// The end of a statement that reads one stream, up to its limit: rows with these values, from `low` to `high`,
/// without them.
///
/// Each value is asked for twice over. An index with nothing but the place would have the order as well, and
/// the server would take it whenever a value is frequent on average; believing that there are very few, it
/// takes the one that has the values too, which is right for all of them.
pub(crate) fn stream(values: &[(&str, &str)], (low, high): (&str, &str), order: Order) -> String {
    let direction = direction(order);
    let values: Vec<String> =
        values.iter().map(|(c, v)| format!("{c} = {v} and {c} >= {v} and {c} <= {v}")).collect();
    let values = values.join(" and ");
    format!("{values} and id > {low} and id < {high} order by id {direction} limit")
}

/// Every statement that is put together at run time, for the test that asks for their plans.
pub(crate) fn statements() -> Vec<(String, String)> {
    let orders = [Order::NewestFirst, Order::OldestFirst];
    let lists = orders.into_iter().flat_map(|order| {
        let events = events::statements(order).into_iter();
        let lists = events.chain(deliveries::statements(order)).chain(attempts::statements(order));
        let lists = lists.chain(crate::audit::statements(order));
        lists.chain(crate::page_session::statements(order))
    });
    lists.chain(deliveries::skips()).chain(attempts::skips()).collect()
}

/// Whether nothing that went well can be meant: then the indexes of failures have it all.
fn is_of_failures(filter: Option<&OutcomeFilter>) -> bool {
    match filter {
        None => false,
        Some(OutcomeFilter::Failures(_)) => true,
        Some(OutcomeFilter::Status(first, last)) => *last < 200 || *first > 299,
    }
}

/// The smallest id that can have been made at a time.
fn floor(at: i64) -> u128 {
    let at = at.clamp(0, (1 << 48) - 1);
    u128::from_be_bytes(*EventId::floor(Timestamp::from_millis(at)).as_bytes())
}

/// The ids that rows of a period can have: between these two, without them.
async fn ids_of(
    client: &Object,
    tenant: TenantId,
    period: &Period,
    made: Made,
) -> Outcome<(u128, u128)> {
    if *period == Period::default() {
        return Ok((0, u128::MAX));
    }
    let rows = query(client, sql::SKEW, &[&Uid::from(tenant)]).await?;
    let Some(row) = rows.first() else { return Ok((0, u128::MAX)) };
    let later: Option<i64> = row.try_get("later")?;
    let replayed = match (made, later) {
        (Made::Later, Some(later)) => Some(Replayed { later, last: row.try_get("last")? }),
        _ => None,
    };
    Ok(bounds(period, row.try_get("millis")?, replayed))
}

/// What jobs have made for a tenant.
#[derive(Clone, Copy)]
struct Replayed {
    /// By how much ids are later than rows, at most.
    later: i64,
    /// The time of the last id.
    last: i64,
}

fn bounds(period: &Period, skew: i64, replayed: Option<Replayed>) -> (u128, u128) {
    let from = period.from.map_or(0, |from| floor(from.as_millis().saturating_sub(skew)));
    let until = period.until.map_or(u128::MAX, |until| {
        let until = until.as_millis();
        let beyond = replayed
            .map_or(i64::MIN, |replayed| until.saturating_add(replayed.later).min(replayed.last));
        match until.saturating_add(skew).max(beyond) {
            late if late >= (1 << 48) - 1 => u128::MAX,
            // Of the last millisecond, too.
            until => floor(until + 1),
        }
    });
    (from.saturating_sub(1), until)
}

/// When the ids of rows are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// In the moment of the row.
    AtOnce,
    /// Perhaps long after it: jobs make deliveries of old events.
    Later,
}

fn uid(place: u128) -> Uid {
    Uid(place.to_be_bytes())
}

fn place_of(uid: Uid) -> u128 {
    u128::from_be_bytes(uid.0)
}

/// A subscription of a tenant, also one that was deleted.
struct Owned {
    id: SubscriptionId,
    /// Deleted, with deliveries that are not swept yet.
    gone: bool,
}

async fn owned(client: &Object, tenant: TenantId, id: SubscriptionId) -> Outcome<Option<Owned>> {
    let rows =
        query(client, sql::SUBSCRIPTION_OWNED, &[&Uid::from(id), &Uid::from(tenant)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Owned { id, gone: Reader::new(row, "subscription", "id").get("gone")? }))
}

/// The deliveries that an event lists.
async fn listed(client: &Object, tenant: TenantId, event: EventId) -> Outcome<Vec<Uid>> {
    let rows =
        query(client, sql::EVENT_DELIVERIES, &[&Uid::from(tenant), &Uid::from(event)]).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    Ok(Reader::new(row, "event", "id").get("deliveries")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_time_are_bounds_of_ids() {
        let at = |millis| Timestamp::from_millis(millis);
        let id = |millis| u128::from_be_bytes(*EventId::new(at(millis), u128::MAX).as_bytes());
        assert!(floor(5) <= id(5) && id(4) < floor(5));
        assert_eq!(floor(-1), 0);
        assert!(floor(i64::MAX) > id(1 << 47));
    }

    #[test]
    fn a_period_reaches_beyond_its_end_only_where_something_was_replayed() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        let period = Period { from: at(1_000), until: at(2_000) };
        let plain = bounds(&period, 8, None);
        assert_eq!(plain, (floor(992) - 1, floor(2_009)));
        let until = |later, last| bounds(&period, 8, Some(Replayed { later, last })).1;
        assert_eq!(until(500, 100_000), floor(2_501), "as late as one ever was");
        assert_eq!(until(64_000, 5_000), floor(5_001), "and not after the last");
        assert_eq!(until(64_000, 1_500), plain.1, "all of them were made before");
        let open = Period { from: at(1_000), until: None };
        assert_eq!(bounds(&open, 8, Some(Replayed { later: 1, last: 1 })).1, u128::MAX);
    }

    #[test]
    fn failures_are_what_is_not_between_200_and_299() {
        let status = |first, last| is_of_failures(Some(&OutcomeFilter::Status(first, last)));
        assert!(status(500, 599) && status(100, 199) && status(300, 300));
        assert!(!status(200, 299) && !status(100, 200) && !status(299, 500) && !status(100, 599));
        assert!(is_of_failures(Some(&OutcomeFilter::Failures(Vec::new()))));
        assert!(!is_of_failures(None));
    }
}
