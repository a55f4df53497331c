//! Questions about events, deliveries, attempts and redrives.

use std::collections::BTreeMap;

use posthorn_domain::{
    Attempt, Delivery, DeliveryId, Event, EventId, Redrive, RedriveId, TenantId,
};
use posthorn_store::{Counts, DeliveryFilter, EventFilter, Page, Prune, RedrivePage, StateKind};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::rows;
use crate::codec::{Columns, int, redrive_state_of};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Greater than every id: one byte longer than the greatest.
const AFTER_ALL: [u8; 17] = [0xff; 17];

/// Events that are looked at in one search for old ones.
const PRUNE_SCAN: usize = 20_000;

fn tenant_no(conn: &Connection, id: TenantId) -> Result<Option<i64>, Failure> {
    let mut statement = conn.prepare_cached("select no from tenant where id = ?1")?;
    Ok(statement.query_row([id.as_bytes().as_slice()], |row| row.get(0)).optional()?)
}

/// Runs a query whose limit is one more than the page, to see whether more follow.
fn page<T>(
    conn: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    limit: usize,
    decode: fn(&Row<'_>) -> Result<T, Corrupt>,
) -> Result<Page<T>, Failure> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        if items.len() == limit {
            return Ok(Page { items, more: true });
        }
        items.push(decode(row)?);
    }
    Ok(Page { items, more: false })
}

pub(crate) fn event(
    conn: &Connection,
    tenant: TenantId,
    id: EventId,
) -> Result<Option<Event>, Failure> {
    let mut statement = conn.prepare_cached(sql::EVENT_BY_ID)?;
    let mut rows =
        statement.query(params![tenant.as_bytes().as_slice(), id.as_bytes().as_slice()])?;
    Ok(rows.next()?.map(rows::event).transpose()?)
}

pub(crate) fn events(
    conn: &Connection,
    tenant: TenantId,
    filter: &EventFilter,
) -> Result<Page<Event>, Failure> {
    let Some(tenant) = tenant_no(conn, tenant)? else {
        return Ok(Page { items: Vec::new(), more: false });
    };
    let before = filter.before.as_ref().map_or(AFTER_ALL.as_slice(), |id| id.as_bytes());
    let topic = filter.topic.as_ref().map(|topic| topic.as_str());
    let event_type = filter.event_type.as_ref().map(|kind| kind.as_str());
    let limit = int(filter.limit as u64).saturating_add(1);
    let values: &[&dyn ToSql] = &[&tenant, &before, &topic, &event_type, &limit];
    page(conn, sql::EVENTS, values, filter.limit, rows::event)
}

pub(crate) fn delivery(
    conn: &Connection,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Option<Delivery>, Failure> {
    let mut statement = conn.prepare_cached(sql::DELIVERY_BY_ID)?;
    let mut rows =
        statement.query(params![id.as_bytes().as_slice(), tenant.as_bytes().as_slice()])?;
    Ok(rows.next()?.map(rows::delivery).transpose()?)
}

pub(crate) fn deliveries(
    conn: &Connection,
    tenant: TenantId,
    filter: &DeliveryFilter,
) -> Result<Page<Delivery>, Failure> {
    let nothing = || Ok(Page { items: Vec::new(), more: false });
    let Some(tenant) = tenant_no(conn, tenant)? else { return nothing() };
    let subscription = match filter.subscription {
        None => None,
        Some(id) => {
            let mut statement = conn.prepare_cached("select no from subscription where id = ?1")?;
            let id = id.as_bytes().as_slice();
            match statement.query_row([id], |row| row.get::<_, i64>(0)).optional()? {
                Some(no) => Some(no),
                None => return nothing(),
            }
        }
    };
    let before = filter.before.as_ref().map_or(AFTER_ALL.as_slice(), |id| id.as_bytes());
    let kind = filter.state.map(kind_code);
    let limit = int(filter.limit as u64).saturating_add(1);
    let base: [&dyn ToSql; 4] = [&tenant, &before, &kind, &limit];
    if let Some(event) = filter.event {
        let Some((first, count)) = neighbours(conn, tenant, event)? else { return nothing() };
        let values: &[&dyn ToSql] =
            &[base[0], base[1], base[2], base[3], &first, &(first + count), &subscription];
        return page(conn, sql::DELIVERIES_OF_EVENT, values, filter.limit, rows::delivery);
    }
    if let Some(subscription) = subscription {
        let values: &[&dyn ToSql] = &[base[0], base[1], base[2], base[3], &subscription];
        return page(conn, sql::DELIVERIES_OF_SUBSCRIPTION, values, filter.limit, rows::delivery);
    }
    let sql = match filter.state {
        Some(StateKind::Dead) => sql::DEAD_DELIVERIES,
        _ => sql::DELIVERIES,
    };
    page(conn, sql, &base, filter.limit, rows::delivery)
}

/// The deliveries of an event: the first seq and how many.
fn neighbours(
    conn: &Connection,
    tenant: i64,
    event: EventId,
) -> Result<Option<(i64, i64)>, Failure> {
    let found = conn
        .prepare_cached("select first_seq, deliveries from event where tenant = ?1 and id = ?2")?
        .query_row(params![tenant, event.as_bytes().as_slice()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(found)
}

const fn kind_code(kind: StateKind) -> i64 {
    match kind {
        StateKind::Pending => 0,
        StateKind::Delivered => 1,
        StateKind::Dead => 2,
        StateKind::Cancelled => 3,
    }
}

pub(crate) fn attempts(
    conn: &Connection,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Vec<Attempt>, Failure> {
    let Some(delivery) = delivery(conn, tenant, id)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(sql::ATTEMPTS)?;
    let mut rows = statement.query([int(delivery.seq)])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(rows::attempt(row, id)?);
    }
    Ok(attempts)
}

pub(crate) fn counts(conn: &Connection, tenant: Option<TenantId>) -> Result<Counts, Failure> {
    let tenant = match tenant {
        None => None,
        Some(id) => match tenant_no(conn, id)? {
            Some(no) => Some(no),
            None => return Ok(Counts::default()),
        },
    };
    let events: i64 = conn
        .prepare_cached("select count(*) from event where ?1 is null or tenant = ?1")?
        .query_row([tenant], |row| row.get(0))?;
    let mut counts = Counts { events: events.unsigned_abs(), ..Counts::default() };
    let mut statement = conn.prepare_cached(sql::COUNT_DELIVERIES)?;
    let mut rows = statement.query([tenant])?;
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "delivery", 0);
        let count = columns.number(1)?;
        match columns.int(0)? {
            0 => counts.pending = count,
            1 => counts.delivered = count,
            2 => counts.dead = count,
            _ => counts.cancelled = count,
        }
    }
    Ok(counts)
}

pub(crate) fn pending_by_tenant(conn: &Connection) -> Result<Vec<(TenantId, u64)>, Failure> {
    let mut statement = conn.prepare_cached(sql::PENDING_BY_SUBSCRIPTION)?;
    let mut rows = statement.query([])?;
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "delivery", 0);
        let tenant = TenantId::from_bytes(columns.array(0)?);
        *counts.entry(tenant).or_insert(0) += columns.number::<u64>(1)?;
    }
    Ok(counts.into_iter().collect())
}

/// What is read of a redrive; `t` is its tenant.
const REDRIVE: &str = "select r.id, t.id, r.filter, r.per_second, r.state, r.total, r.moved, \
    r.created_at, r.finished_at, r.cursor from redrive r join tenant t on t.no = r.tenant";

fn decode_redrive(row: &Row<'_>) -> Result<(Redrive, i64), Corrupt> {
    let columns = Columns::of(row, "redrive", 0);
    let state = columns.int(4)?;
    let redrive = Redrive {
        id: RedriveId::from_bytes(columns.array(0)?),
        tenant: TenantId::from_bytes(columns.array(1)?),
        filter: columns.json(2)?,
        per_second: columns.number(3)?,
        state: redrive_state_of(state)
            .ok_or_else(|| columns.corrupt(format_args!("there is no state {state}")))?,
        total: columns.number(5)?,
        moved: columns.number(6)?,
        created_at: columns.time(7)?,
        finished_at: columns.maybe_time(8)?,
    };
    Ok((redrive, columns.int(9)?))
}

/// A redrive with its cursor.
pub(crate) fn redrive(conn: &Connection, id: RedriveId) -> Result<Option<(Redrive, i64)>, Failure> {
    let mut statement = conn.prepare_cached(&format!("{REDRIVE} where r.id = ?1"))?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    Ok(rows.next()?.map(decode_redrive).transpose()?)
}

/// A range of `redrive_by_tenant`, backwards.
pub(crate) fn redrives(
    conn: &Connection,
    tenant: TenantId,
    wanted: RedrivePage,
) -> Result<Page<Redrive>, Failure> {
    let Some(tenant) = tenant_no(conn, tenant)? else {
        return Ok(Page { items: Vec::new(), more: false });
    };
    let sql = format!("{REDRIVE} where r.tenant = ?1 and r.id < ?2 order by r.id desc limit ?3");
    let before = wanted.before.as_ref().map_or(AFTER_ALL.as_slice(), |id| id.as_bytes());
    let limit = int(wanted.limit as u64).saturating_add(1);
    let values: &[&dyn ToSql] = &[&tenant, &before, &limit];
    page(conn, &sql, values, wanted.limit, |row| Ok(decode_redrive(row)?.0))
}

/// The whole of `redrive_running`, which holds nothing else.
pub(crate) fn running_redrives(conn: &Connection, limit: usize) -> Result<Vec<Redrive>, Failure> {
    let sql = format!("{REDRIVE} where r.state = 0 order by r.id limit ?1");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([int(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode_redrive(row)?.0);
    }
    Ok(found)
}

/// Events after a place that may go, and where to look next; `None` at the end.
pub(crate) fn prune_candidates(
    conn: &Connection,
    after: i64,
    prune: &Prune,
) -> Result<(Vec<i64>, Option<i64>), Failure> {
    let mut statement = conn.prepare_cached(sql::PRUNE_CANDIDATES)?;
    let mut rows = statement.query(params![
        after,
        prune.ended_before.as_millis(),
        prune.dead_before.min(prune.ended_before).as_millis(),
        int(PRUNE_SCAN as u64),
    ])?;
    let (mut found, mut scanned, mut last) = (Vec::new(), 0, after);
    while let Some(row) = rows.next()? {
        if found.len() >= prune.limit {
            return Ok((found, Some(last)));
        }
        last = row.get(0)?;
        scanned += 1;
        if row.get(1)? {
            found.push(last);
        }
    }
    Ok((found, (scanned == PRUNE_SCAN).then_some(last)))
}
