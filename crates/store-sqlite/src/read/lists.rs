//! Lists of events, deliveries and attempts. How they find their rows: [`crate::log`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use posthorn_domain::{
    Delivery, DeliveryId, Event, EventId, Outcome, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    AttemptFilter, AttemptLine, DeliveryFilter, EventFilter, EventLine, Listing, Order,
    OutcomeFilter, Page, Period, StateKind,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::ahead::Ahead;
use super::{queries, rows};
use crate::codec::{Columns, state_of};
use crate::error::{Corrupt, Failure};
use crate::log::build;
use crate::log::changes::{OUTCOMES, STATES};
use crate::log::walk::{Pages, Terms, Visit, Way, bounds, ranges, walk};
use crate::log::{List, NO_OUTCOME, OPEN, about, hash};
use crate::sql;

/// From the first, up to but without the second.
fn times(period: &Period) -> (i64, i64) {
    let from = period.from.map_or(i64::MIN, Timestamp::as_millis);
    (from, period.until.map_or(i64::MAX, Timestamp::as_millis))
}

/// The time of a row, or of the one before it when it is gone.
fn time_of(conn: &Connection, list: List, row: i64) -> Result<Option<i64>, Failure> {
    let sql = match list {
        List::Events => "select accepted_at from event where no <= ?1 order by no desc limit 1",
        List::Deliveries => {
            "select e.accepted_at from delivery d cross join event e on e.no = d.event \
             where d.seq <= ?1 order by d.seq desc limit 1"
        }
        List::Attempts => "select started_at from attempt where no <= ?1 order by no desc limit 1",
    };
    Ok(conn.prepare_cached(sql)?.query_row([row], |row| row.get(0)).optional()?)
}

fn last_row(conn: &Connection, list: List) -> Result<i64, Failure> {
    let sql = match list {
        List::Events => "select coalesce(max(no), 0) from event",
        List::Deliveries => "select coalesce(max(seq), 0) from delivery",
        List::Attempts => "select coalesce(max(no), 0) from attempt",
    };
    Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Which rows between two, both included, are worth reading: by their numbers, in rising order.
fn between(
    conn: &Connection,
    sql: &str,
    first: i64,
    last: i64,
    worth: impl Fn(&Row<'_>) -> Result<bool, Failure>,
) -> Result<Vec<i64>, Failure> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([first, last])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if worth(row)? {
            found.push(row.get(0)?);
        }
    }
    Ok(found)
}

/// Visits the rows that a statement names, whose text ends with its order.
fn visit_named<T>(
    conn: &Connection,
    list: List,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
    listing: &Listing,
    look: &mut impl FnMut(i64) -> Result<Visit<T>, Failure>,
) -> Result<Page<T>, Failure> {
    let mut pages = Pages::new(listing.limit);
    let _ = visit_each(conn, sql, values, listing.order, &mut pages, look)?;
    pages.finish(|row| time_of(conn, list, row))
}

fn visit_each<T>(
    conn: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
    order: Order,
    pages: &mut Pages<T>,
    look: &mut impl FnMut(i64) -> Result<Visit<T>, Failure>,
) -> Result<ControlFlow<()>, Failure> {
    let sql = match order {
        Order::NewestFirst => format!("{sql} desc"),
        Order::OldestFirst => sql.to_owned(),
    };
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(values)?;
    while let Some(row) = rows.next()? {
        if pages.visit(row.get(0)?, look)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The same with a statement that names the rows of an owner from one, up to but without another: what is rare. Of a
/// period, only blocks that have something of it are asked for.
fn visit_rare<T>(
    conn: &Connection,
    way: &Way,
    sql: &str,
    owner: i64,
    limit: usize,
    look: &mut impl FnMut(i64) -> Result<Visit<T>, Failure>,
) -> Result<Page<T>, Failure> {
    let mut pages = Pages::new(limit);
    for (from, until) in ranges(conn, way)? {
        let values: &[&dyn rusqlite::ToSql] = &[&owner, &from, &until];
        if visit_each(conn, sql, values, way.order, &mut pages, look)?.is_break() {
            break;
        }
    }
    pages.finish(|row| time_of(conn, way.list, row))
}

// ---- events ----------------------------------------------------------------------------------

pub(crate) fn events(
    conn: &Connection,
    tenant: TenantId,
    filter: &EventFilter,
    listing: &Listing,
) -> Result<Page<Event>, Failure> {
    let read = |no| Ok(std::sync::Arc::unwrap_or_clone(rows::event_by_no(conn, no)?));
    list_events(conn, tenant, filter, listing, read)
}

/// The same without payloads.
pub(crate) fn event_lines(
    conn: &Connection,
    tenant: TenantId,
    filter: &EventFilter,
    listing: &Listing,
) -> Result<Page<EventLine>, Failure> {
    list_events(conn, tenant, filter, listing, |no| rows::event_line(conn, no))
}

fn list_events<T>(
    conn: &Connection,
    tenant: TenantId,
    filter: &EventFilter,
    listing: &Listing,
    read: impl Fn(i64) -> Result<T, Failure>,
) -> Result<Page<T>, Failure> {
    let Some(owner) = queries::tenant_no(conn, tenant)? else { return Ok(Page::empty()) };
    let mut way = Way::new(List::Events, listing, times(&filter.accepted));
    if let Some(first) = filter.from_event {
        let Some(no) = event_from(conn, owner, first)? else { return Ok(Page::empty()) };
        way.rows.0 = way.rows.0.max(no);
    }
    let mut ahead = Ahead::new(listing.order);
    let mut look = |no: i64| look_at_event(conn, owner, filter, &mut ahead, no, &read);
    if filter.with_dead_letters {
        return visit_rare(conn, &way, sql::EVENTS_WITH_DEAD, owner, listing.limit, &mut look);
    }
    let terms = Terms::All { owner, kinds: kinds(filter) };
    let mut pages = Pages::new(listing.limit);
    walk(conn, &way, &terms, last_row(conn, List::Events)?, &mut pages, look)?;
    pages.finish(|row| time_of(conn, List::Events, row))
}

/// The number of an event of a tenant, or, when it is gone, of the first whose id comes after it.
fn event_from(conn: &Connection, tenant: i64, id: EventId) -> Result<Option<i64>, Failure> {
    let values = params![tenant, id.as_bytes().as_slice()];
    let mut statement = conn.prepare_cached(sql::EVENT_FROM_ID)?;
    Ok(statement.query_row(values, |row| row.get(0)).optional()?)
}

/// What the index knows of a filter, the rarest first.
fn kinds(filter: &EventFilter) -> Vec<(i64, Vec<i64>)> {
    let mut kinds = Vec::new();
    if let Some(id) = &filter.publisher_id {
        kinds.push((about::PUBLISHER_ID, vec![hash(id.as_str().as_bytes())]));
    }
    if let Some(key) = &filter.key {
        kinds.push((about::KEY, vec![hash(key.as_str().as_bytes())]));
    }
    if filter.unwanted {
        kinds.push((about::UNWANTED, vec![0]));
    }
    let hashed = |texts: &mut dyn Iterator<Item = &str>| {
        let mut values: Vec<i64> = texts.map(|text| hash(text.as_bytes())).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    if !filter.types.is_empty() {
        kinds.push((about::TYPE, hashed(&mut filter.types.iter().map(|kind| kind.as_str()))));
    }
    if !filter.topics.is_empty() {
        kinds.push((about::TOPIC, hashed(&mut filter.topics.iter().map(|topic| topic.as_str()))));
    }
    if kinds.is_empty() {
        kinds.push((about::ALL, vec![0]));
    }
    kinds
}

fn look_at_event<T>(
    conn: &Connection,
    tenant: i64,
    filter: &EventFilter,
    ahead: &mut Ahead,
    no: i64,
    read: &impl Fn(i64) -> Result<T, Failure>,
) -> Result<Visit<T>, Failure> {
    let meant = |row: &Row<'_>| Ok(row.get::<_, i64>(1)? == tenant && is_meant(row, filter)?);
    if !ahead.is_worth(no, |first, last| between(conn, sql::EVENT_GLANCE, first, last, meant))? {
        return Ok(Visit::Other);
    }
    Ok(Visit::Item(read(no)?))
}

/// What [`EventFilter::wants`] says, without reading the whole event.
fn is_meant(row: &Row<'_>, filter: &EventFilter) -> Result<bool, Failure> {
    let text = |column: usize| -> Result<&[u8], Failure> {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(text) => text,
            _ => &[],
        })
    };
    let (topic, kind, key, id) = (text(3)?, text(4)?, text(5)?, text(6)?);
    Ok((filter.topics.is_empty()
        || filter.topics.iter().any(|own| own.as_str().as_bytes() == topic))
        && (filter.types.is_empty()
            || filter.types.iter().any(|own| own.as_str().as_bytes() == kind))
        && filter.key.as_ref().is_none_or(|own| own.as_str().as_bytes() == key)
        && filter.publisher_id.as_ref().is_none_or(|own| own.as_str().as_bytes() == id)
        && (!filter.unwanted || row.get::<_, i64>(8)? == 0)
        && filter.accepted.contains(Timestamp::from_millis(row.get(2)?))
        && has_attributes(row, filter)?)
}

fn has_attributes(row: &Row<'_>, filter: &EventFilter) -> Result<bool, Failure> {
    if filter.attributes.is_empty() {
        return Ok(true);
    }
    let columns = Columns::of(row, "event", 0);
    if columns.maybe_text(7)?.is_none() {
        return Ok(false);
    }
    let attributes: BTreeMap<String, String> = columns.json(7)?;
    Ok(filter.attributes.iter().all(|(name, value)| attributes.get(name) == Some(value)))
}

// ---- deliveries ------------------------------------------------------------------------------

pub(crate) fn deliveries(
    conn: &Connection,
    tenant: TenantId,
    filter: &DeliveryFilter,
    listing: &Listing,
) -> Result<Page<Delivery>, Failure> {
    let Some(owner) = queries::tenant_no(conn, tenant)? else { return Ok(Page::empty()) };
    let subscription = match filter.subscription {
        None => None,
        Some(id) => match subscription_no(conn, owner, id)? {
            Some(no) => Some(no),
            None => return Ok(Page::empty()),
        },
    };
    let unswept = is_unswept(conn, owner)?;
    let whose = Whose { tenant: owner, subscription, unswept };
    let mut ahead = Ahead::new(listing.order);
    let mut look = |seq: i64| look_at_delivery(conn, whose, filter, &mut ahead, seq);
    let (from, until) = bounds(listing);
    if let Some(event) = filter.event {
        let Some(event) = neighbours(conn, owner, event)? else { return Ok(Page::empty()) };
        let Neighbours { no, first, end, .. } = event;
        let (lowest, highest) = states(filter, unswept);
        let values: &[&dyn rusqlite::ToSql] =
            &[&first, &end, &subscription, &lowest, &highest, &no, &from, &until];
        return visit_named(conn, List::Deliveries, sql::SEQS_OF_EVENT, values, listing, &mut look);
    }
    if filter.state == Some(StateKind::InFlight) {
        return visit_named(
            conn,
            List::Deliveries,
            sql::IN_FLIGHT_SEQS,
            &[&owner, &from, &until],
            listing,
            &mut look,
        );
    }
    let plain = filter.exactly.is_none() && filter.outcome.is_none() && subscription.is_none();
    if filter.state == Some(StateKind::Dead) && plain {
        let way = Way::new(List::Deliveries, listing, times(&filter.created));
        return visit_rare(conn, &way, sql::DEAD_SEQS, owner, listing.limit, &mut look);
    }
    let wants = |state: i64, outcome: i64| {
        let open = state == OPEN && unswept;
        (open || state_of(state).is_some_and(|state| filter.wants_state(state)))
            && filter.outcome.as_ref().is_none_or(|filter| wants_code(filter, outcome))
    };
    let unless = if filter.outcome.is_some() { STATES | OUTCOMES } else { STATES };
    // Nothing of a state is asked: then no state can be wrong.
    let any_state = filter.state.is_none() && filter.exactly.is_none();
    let unless = if any_state { unless & !STATES } else { unless };
    let terms = Terms::Owner {
        owner: subscription.map_or(owner, i64::wrapping_neg),
        wants: &wants,
        unless,
    };
    let way = Way::new(List::Deliveries, listing, times(&filter.created));
    let mut pages = Pages::new(listing.limit);
    walk(conn, &way, &terms, last_row(conn, List::Deliveries)?, &mut pages, look)?;
    pages.finish(|row| time_of(conn, List::Deliveries, row))
}

/// Whether a stored outcome is meant.
fn wants_code(filter: &OutcomeFilter, code: i64) -> bool {
    let outcome = i32::try_from(code).ok().filter(|_| code != NO_OUTCOME);
    outcome.and_then(Outcome::from_code).is_some_and(|outcome| filter.wants(outcome))
}

/// The lowest and the highest stored state that may be meant.
fn states(filter: &DeliveryFilter, unswept: bool) -> (i64, i64) {
    let all = (0, 99);
    let wanted = |code: &i64| state_of(*code).is_some_and(|state| filter.wants_state(state));
    let mut codes: Vec<i64> = (all.0..=all.1).filter(wanted).collect();
    if codes.contains(&20) && unswept {
        codes.insert(0, 0);
    }
    (codes.first().copied().unwrap_or(-1), codes.last().copied().unwrap_or(-1))
}

/// Whether the tenant has deliveries that read as cancelled and are not yet stored so.
fn is_unswept(conn: &Connection, tenant: i64) -> Result<bool, Failure> {
    let sql = "select exists (select 1 from subscription indexed by subscription_unswept \
               where deleted_at is not null and swept = 0 and tenant = ?1)";
    Ok(conn.prepare_cached(sql)?.query_row([tenant], |row| row.get(0))?)
}

pub(crate) fn subscription_no(
    conn: &Connection,
    tenant: i64,
    id: SubscriptionId,
) -> Result<Option<i64>, Failure> {
    let sql = "select no from subscription where id = ?1 and tenant = ?2";
    let values = params![id.as_bytes().as_slice(), tenant];
    Ok(conn.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
}

/// The deliveries that were stored with an event: from the first seq, up to but without the end.
#[derive(Clone, Copy)]
pub(crate) struct Neighbours {
    pub(crate) no: i64,
    pub(crate) first: i64,
    pub(crate) end: i64,
    /// When the event is to be delivered, where it said so.
    pub(crate) deliver_at: Option<Timestamp>,
}

pub(crate) fn neighbours(
    conn: &Connection,
    tenant: i64,
    event: EventId,
) -> Result<Option<Neighbours>, Failure> {
    let sql = "select no, first_seq, first_seq + deliveries, deliver_at from event \
        where tenant = ?1 and id = ?2";
    let values = params![tenant, event.as_bytes().as_slice()];
    let found = conn
        .prepare_cached(sql)?
        .query_row(values, |row| {
            let deliver_at = row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis);
            Ok(Neighbours { no: row.get(0)?, first: row.get(1)?, end: row.get(2)?, deliver_at })
        })
        .optional()?;
    Ok(found)
}

/// Whose deliveries a list is about, by numbers.
#[derive(Clone, Copy)]
struct Whose {
    tenant: i64,
    subscription: Option<i64>,
    /// Whether what is stored as open may read as cancelled.
    unswept: bool,
}

fn look_at_delivery(
    conn: &Connection,
    whose: Whose,
    filter: &DeliveryFilter,
    ahead: &mut Ahead,
    seq: i64,
) -> Result<Visit<Delivery>, Failure> {
    let worth = |row: &Row<'_>| -> Result<bool, Failure> {
        let state: i64 = row.get(3)?;
        let open = state < 2 && whose.unswept;
        let outcome = row.get::<_, Option<i64>>(4)?.unwrap_or(NO_OUTCOME);
        let worth = row.get::<_, i64>(1)? == whose.tenant
            && whose.subscription.is_none_or(|wanted| row.get(2) == Ok(wanted))
            && (open || state_of(state).is_some_and(|state| filter.wants_state(state)))
            && filter.outcome.as_ref().is_none_or(|filter| wants_code(filter, outcome));
        // At the ends of a period there may be thousands that are not part of it.
        if !worth || filter.created == Period::default() {
            return Ok(worth);
        }
        let sql = "select accepted_at from event where no = ?1";
        let event: i64 = row.get(5)?;
        let created = conn.prepare_cached(sql)?.query_row([event], |row| row.get(0))?;
        Ok(filter.created.contains(Timestamp::from_millis(created)))
    };
    if !ahead
        .is_worth(seq, |first, last| between(conn, sql::DELIVERY_GLANCE, first, last, worth))?
    {
        return Ok(Visit::Other);
    }
    let delivery = rows::delivery_by_seq(conn, seq)?;
    Ok(if filter.wants(&delivery) { Visit::Item(delivery) } else { Visit::Other })
}

// ---- attempts --------------------------------------------------------------------------------

pub(crate) fn attempts(
    conn: &Connection,
    tenant: TenantId,
    filter: &AttemptFilter,
    listing: &Listing,
) -> Result<Page<AttemptLine>, Failure> {
    let Some(owner) = queries::tenant_no(conn, tenant)? else { return Ok(Page::empty()) };
    let subscription = match filter.subscription {
        None => None,
        Some(id) => match subscription_no(conn, owner, id)? {
            Some(no) => Some(no),
            None => return Ok(Page::empty()),
        },
    };
    let mut ahead = Ahead::new(listing.order);
    let mut look = |no: i64| look_at_attempt(conn, (owner, subscription), filter, &mut ahead, no);
    if let Some(event) = filter.event {
        let Some(neighbours) = neighbours(conn, owner, event)? else { return Ok(Page::empty()) };
        return attempts_of_event(conn, neighbours, listing, &mut look);
    }
    let wants = |manual: i64, outcome: i64| {
        filter.manual.is_none_or(|wanted| wanted == (manual != 0))
            && filter.outcome.as_ref().is_none_or(|filter| wants_code(filter, outcome))
    };
    let owner_of = subscription.map_or(owner, i64::wrapping_neg);
    let terms = Terms::Owner { owner: owner_of, wants: &wants, unless: 0 };
    let way = Way::new(List::Attempts, listing, times(&filter.started));
    let mut pages = Pages::new(listing.limit);
    walk(conn, &way, &terms, last_row(conn, List::Attempts)?, &mut pages, look)?;
    pages.finish(|row| time_of(conn, List::Attempts, row))
}

/// They are found by their deliveries, and put in order here: an event has few.
fn attempts_of_event(
    conn: &Connection,
    Neighbours { no, first, end, .. }: Neighbours,
    listing: &Listing,
    look: &mut impl FnMut(i64) -> Result<Visit<AttemptLine>, Failure>,
) -> Result<Page<AttemptLine>, Failure> {
    let (from, until) = bounds(listing);
    let mut statement = conn.prepare_cached(sql::ATTEMPTS_OF_EVENT)?;
    let found = statement.query_map([first, end, no], |row| row.get::<_, i64>(0))?;
    let mut found = found.collect::<rusqlite::Result<Vec<i64>>>()?;
    found.retain(|no| (from..until).contains(no));
    found.sort_unstable();
    if listing.order == Order::NewestFirst {
        found.reverse();
    }
    let mut pages = Pages::new(listing.limit);
    for no in found {
        if let ControlFlow::Break(()) = pages.visit(no, look)? {
            break;
        }
    }
    pages.finish(|row| time_of(conn, List::Attempts, row))
}

fn look_at_attempt(
    conn: &Connection,
    (tenant, subscription): (i64, Option<i64>),
    filter: &AttemptFilter,
    ahead: &mut Ahead,
    no: i64,
) -> Result<Visit<AttemptLine>, Failure> {
    let worth = |row: &Row<'_>| -> Result<bool, Failure> {
        let outcome = match row.get::<_, Option<i64>>(5)? {
            Some(status) => status,
            None => build::failure(row.get_ref(6)?),
        };
        Ok(row.get::<_, i64>(1)? == tenant
            && subscription.is_none_or(|wanted| row.get(2) == Ok(wanted))
            && filter.started.contains(Timestamp::from_millis(row.get(3)?))
            && filter.manual.is_none_or(|wanted| row.get(4) == Ok(wanted))
            && filter.outcome.as_ref().is_none_or(|filter| wants_code(filter, outcome)))
    };
    if !ahead.is_worth(no, |first, last| between(conn, sql::ATTEMPT_GLANCE, first, last, worth))? {
        return Ok(Visit::Other);
    }
    let mut statement = conn.prepare_cached(sql::ATTEMPT_LINE)?;
    let mut rows = statement.query([no])?;
    let Some(row) = rows.next()? else { return Ok(Visit::Other) };
    let line = line(row)?;
    Ok(if filter.wants(&line) { Visit::Item(line) } else { Visit::Other })
}

/// Decodes [`sql::ATTEMPT_LINE`].
pub(crate) fn line(row: &Row<'_>) -> Result<AttemptLine, Corrupt> {
    let columns = Columns::of(row, "attempt", 0);
    Ok(AttemptLine {
        attempt: rows::attempt(row, DeliveryId::from_bytes(columns.array(13)?))?,
        event: EventId::from_bytes(columns.array(14)?),
        subscription: SubscriptionId::from_bytes(columns.array(15)?),
    })
}
