//! Questions about jobs.

use std::collections::HashMap;

use posthorn_domain::{DeliveryState, EventId, Job, JobId, SubscriptionId, TenantId};
use posthorn_store::{EventTally, Listing, Order, Page, Place};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::lists::{Neighbours, neighbours, subscription_no};
use super::queries;
use crate::codec::{Columns, int, job_state_of, state_of};
use crate::error::{Corrupt, Failure};
use crate::log::walk::place_of;
use crate::sql;

/// What is read of a job; `t` is its tenant.
const JOB: &str = "select j.id, t.id, j.work, j.per_second, j.state, j.seen, j.done, j.created_by, j.created_at, \
    j.finished_at, j.problem, j.cursor from job j join tenant t on t.no = j.tenant";

fn decode(row: &Row<'_>) -> Result<(Job, Option<Place>), Corrupt> {
    let columns = Columns::of(row, "job", 0);
    let state = columns.int(4)?;
    let job = Job {
        id: JobId::from_bytes(columns.array(0)?),
        tenant: TenantId::from_bytes(columns.array(1)?),
        work: columns.json(2)?,
        per_second: columns.number(3)?,
        state: job_state_of(state)
            .ok_or_else(|| columns.corrupt(format_args!("there is no state {state}")))?,
        seen: columns.number(5)?,
        done: columns.number(6)?,
        created_by: columns.text(7)?.to_owned(),
        created_at: columns.time(8)?,
        finished_at: columns.maybe_time(9)?,
        problem: columns.maybe_text(10)?.map(str::to_owned),
    };
    Ok((job, columns.maybe_int(11)?.map(place_of)))
}

/// A job, and where it stands.
pub(crate) fn job(conn: &Connection, id: JobId) -> Result<Option<(Job, Option<Place>)>, Failure> {
    let mut statement = conn.prepare_cached(&format!("{JOB} where j.id = ?1"))?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    Ok(rows.next()?.map(decode).transpose()?)
}

/// A range of `job_by_tenant`.
pub(crate) fn jobs(
    conn: &Connection,
    tenant: TenantId,
    listing: &Listing,
) -> Result<Page<Job>, Failure> {
    let Some(tenant) = queries::tenant_no(conn, tenant)? else { return Ok(Page::empty()) };
    let (compared, order) = match listing.order {
        Order::NewestFirst => ("<", "desc"),
        Order::OldestFirst => (">", "asc"),
    };
    let sql = format!(
        "{JOB} where j.tenant = ?1 and (?2 is null or j.id {compared} ?2) order by j.id {order} limit ?3"
    );
    let after = listing.after.map(|place| place.0.to_be_bytes());
    let limit = int(listing.limit as u64).saturating_add(1);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![tenant, after, limit])?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        items.push(decode(row)?.0);
    }
    let more = items.len() > listing.limit;
    items.truncate(listing.limit);
    Ok(Page::of(items, |job| Place(u128::from_be_bytes(*job.id.as_bytes())), more))
}

/// The whole of `job_running`, which holds nothing else; then sorted, by what is first of each tenant.
pub(crate) fn running(
    conn: &Connection,
    limit: usize,
) -> Result<Vec<(Job, Option<Place>)>, Failure> {
    let sql = format!(
        "{JOB} where j.state = 0 order by row_number() over (partition by j.tenant order by j.id), j.id limit ?1"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([int(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(row)?);
    }
    Ok(found)
}

/// Finds deliveries of events to subscriptions. All that were stored with an event are read once, however many of them
/// are asked for one after another.
#[derive(Default)]
pub(crate) struct Finder {
    /// The event that was asked for last, and the seqs of its deliveries by subscription.
    last: Option<(i64, HashMap<i64, i64>)>,
}

impl Finder {
    /// The delivery of an event to a subscription: its seq and its state.
    pub(crate) fn find(
        &mut self,
        conn: &Connection,
        event: &Neighbours,
        subscription: i64,
    ) -> Result<Option<(i64, i64)>, Failure> {
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let later = conn
            .prepare_cached(sql::LATER_DELIVERY)?
            .query_row(params![event.no, subscription], read)
            .optional()?;
        if later.is_some() {
            return Ok(later);
        }
        let Some(seq) = self.of(conn, event)?.get(&subscription).copied() else { return Ok(None) };
        let mut statement =
            conn.prepare_cached("select seq, state from delivery where seq = ?1")?;
        Ok(statement.query_row([seq], read).optional()?)
    }

    fn of(
        &mut self,
        conn: &Connection,
        &Neighbours { no, first, end, .. }: &Neighbours,
    ) -> Result<&HashMap<i64, i64>, Failure> {
        let known = match self.last.take().filter(|(last, _)| *last == no) {
            Some(known) => known,
            None => {
                let mut statement = conn.prepare_cached(sql::DELIVERIES_OF_EVENT)?;
                let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                (no, statement.query_map([first, end], read)?.collect::<rusqlite::Result<_>>()?)
            }
        };
        Ok(&self.last.insert(known).1)
    }
}

/// How many deliveries events have.
pub(crate) fn fan_outs(
    conn: &Connection,
    tenant: TenantId,
    events: &[EventId],
) -> Result<Vec<usize>, Failure> {
    let Some(tenant) = queries::tenant_no(conn, tenant)? else { return Ok(vec![0; events.len()]) };
    let mut statement = conn.prepare_cached(sql::FAN_OUT)?;
    let mut counts = Vec::with_capacity(events.len());
    for event in events {
        let values = params![tenant, event.as_bytes().as_slice()];
        let count: Option<i64> = statement.query_row(values, |row| row.get(0)).optional()?;
        counts.push(usize::try_from(count.unwrap_or(0)).unwrap_or(0));
    }
    Ok(counts)
}

/// What became of the deliveries of events.
pub(crate) fn tallies(
    conn: &Connection,
    tenant: TenantId,
    events: &[EventId],
    limit: usize,
) -> Result<Vec<EventTally>, Failure> {
    let mut tallies = vec![EventTally::default(); events.len()];
    let Some(tenant) = queries::tenant_no(conn, tenant)? else { return Ok(tallies) };
    let mut statement = conn.prepare_cached(sql::STATES_OF_EVENT)?;
    for (event, tally) in events.iter().zip(&mut tallies) {
        let Some(event) = neighbours(conn, tenant, *event)? else { continue };
        let most = int(limit as u64).saturating_add(1);
        let mut rows = statement.query(params![event.first, event.end, event.no, most])?;
        let mut looked = 0;
        while let Some(row) = rows.next()? {
            if looked == limit {
                tally.more = true;
                break;
            }
            looked += 1;
            let columns = Columns::of(row, "delivery", 0);
            let code = columns.int(0)?;
            let state = state_of(code)
                .ok_or_else(|| columns.corrupt(format_args!("there is no state {code}")))?;
            tally.add(state, 1);
        }
    }
    Ok(tallies)
}

/// The states of the deliveries of events to subscriptions, where there are any.
pub(crate) fn states(
    conn: &Connection,
    tenant: TenantId,
    pairs: &[(EventId, SubscriptionId)],
) -> Result<Vec<Option<DeliveryState>>, Failure> {
    let Some(tenant) = queries::tenant_no(conn, tenant)? else {
        return Ok(vec![None; pairs.len()]);
    };
    let (mut states, mut finder) = (Vec::with_capacity(pairs.len()), Finder::default());
    for (event, subscription) in pairs {
        let event = neighbours(conn, tenant, *event)?;
        let subscription = subscription_no(conn, tenant, *subscription)?;
        let found = match event.zip(subscription) {
            Some((event, subscription)) => finder.find(conn, &event, subscription)?,
            None => None,
        };
        states.push(found.and_then(|(_, state)| state_of(state)));
    }
    Ok(states)
}
