//! Questions about single things and redrives, and counts. Lists of the log are in [`super::lists`].

use posthorn_domain::{
    Attempt, Delivery, DeliveryId, Event, EventId, Redrive, RedriveId, TenantId, Timestamp,
};
use posthorn_store::{Counts, Page, Prune, RedrivePage};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::rows;
use crate::codec::{Columns, int, redrive_state_of};
use crate::error::{Corrupt, Failure};
use crate::sql;

/// Greater than every id: one byte longer than the greatest.
const AFTER_ALL: [u8; 17] = [0xff; 17];

/// Events that are looked at in one search for old ones.
const PRUNE_SCAN: usize = 20_000;

pub(super) fn tenant_no(conn: &Connection, id: TenantId) -> Result<Option<i64>, Failure> {
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
            return Ok(Page { items, more: true, ..Page::empty() });
        }
        items.push(decode(row)?);
    }
    Ok(Page { items, ..Page::empty() })
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

pub(crate) fn events_by_id(
    conn: &Connection,
    tenant: TenantId,
    ids: &[EventId],
) -> Result<Vec<Event>, Failure> {
    let found = ids.iter().filter_map(|id| event(conn, tenant, *id).transpose());
    found.collect()
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

pub(crate) fn deliveries_by_id(
    conn: &Connection,
    tenant: TenantId,
    ids: &[DeliveryId],
) -> Result<Vec<Delivery>, Failure> {
    ids.iter().filter_map(|id| delivery(conn, tenant, *id).transpose()).collect()
}

/// Before when history was removed for its age.
pub(crate) fn pruned_before(conn: &Connection) -> Result<Option<Timestamp>, Failure> {
    let mut statement = conn.prepare_cached("select pruned_before from store")?;
    let before: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(before.map(Timestamp::from_millis))
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
    let decode = |row: &Row<'_>| {
        let number =
            |column| Ok::<u64, rusqlite::Error>(row.get::<_, i64>(column)?.max(0).unsigned_abs());
        let (events, pending, delivered) = (number(0)?, number(1)?, number(2)?);
        Ok(Counts { events, pending, delivered, dead: number(3)?, cancelled: number(4)? })
    };
    let counts = match tenant {
        None => Some(conn.prepare_cached(sql::COUNTS)?.query_row([], decode)?),
        Some(no) => {
            conn.prepare_cached(sql::COUNTS_OF_TENANT)?.query_row([no], decode).optional()?
        }
    };
    let mut counts = counts.unwrap_or_default();
    let unswept: i64 = conn.prepare_cached(sql::UNSWEPT)?.query_row([tenant], |row| row.get(0))?;
    let unswept = unswept.unsigned_abs().min(counts.pending);
    counts.pending -= unswept;
    counts.cancelled += unswept;
    Ok(counts)
}

pub(crate) fn pending_by_tenant(conn: &Connection) -> Result<Vec<(TenantId, u64)>, Failure> {
    let mut statement = conn.prepare_cached(sql::PENDING_BY_TENANT)?;
    let mut rows = statement.query([])?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "tally", 0);
        counts.push((TenantId::from_bytes(columns.array(0)?), columns.number(1)?));
    }
    Ok(counts)
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
        return Ok(Page::empty());
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

/// Whether the retention of an event is over.
pub(crate) fn may_expire(conn: &Connection, now: Timestamp) -> Result<bool, Failure> {
    let sql = "select exists (select 1 from expiry indexed by expiry_by_time where at <= ?1)";
    Ok(conn.prepare_cached(sql)?.query_row([now.as_millis()], |row| row.get(0))?)
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
