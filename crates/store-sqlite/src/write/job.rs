//! Jobs: bites of bulk work on the history.

use posthorn_domain::{
    Budget, Job, JobId, JobState, Replayed, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    Along, Bite, Bitten, CatalogChange, Ending, Expunges, Recall, Redelivery, Refusal,
};
use rusqlite::params;

use super::{audit, catalog, entry, lanes, tenant, told};
use crate::codec::{NEVER, base_code, due, int, job_code, json, state_of};
use crate::error::Failure;
use crate::log::walk::row_of;
use crate::read::jobs;
use crate::read::lists::{Neighbours, neighbours};
use crate::sql;
use crate::writer::Writer;

/// Writes down a job, with the change of the catalog that comes with it.
pub(crate) fn create(
    writer: &mut Writer,
    job: &Job,
    change: Option<&CatalogChange>,
    along: &Along,
) -> Result<Option<posthorn_domain::CatalogVersion>, Failure> {
    let tenant = writer.cache.tenants.get(&job.tenant).filter(|tenant| !tenant.closed);
    let tenant = tenant.ok_or(Refusal::NotFound)?.no;
    if jobs::job(&writer.conn, job.id)?.is_some() {
        return Err(Refusal::AlreadyExists.into());
    }
    let version = match change {
        Some(change) => Some(catalog::change(writer, change, along)?),
        None => {
            audit::check(&writer.cache, along)?;
            audit::write(writer, along)?;
            None
        }
    };
    writer
        .conn
        .prepare_cached(
            "insert into job (id, tenant, work, per_second, state, seen, done, created_by, created_at, \
             finished_at, problem) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            job.id.as_bytes().as_slice(),
            tenant,
            json(&job.work),
            job.per_second,
            job_code(job.state),
            int(job.seen),
            int(job.done),
            job.created_by,
            job.created_at.as_millis(),
            job.finished_at.map(Timestamp::as_millis),
            job.problem,
        ])?;
    Ok(version)
}

/// Stops a running job.
pub(crate) fn cancel(
    writer: &mut Writer,
    tenant: TenantId,
    id: JobId,
    at: Timestamp,
    ending: Option<&Ending>,
    along: &Along,
) -> Result<Job, Failure> {
    let found = jobs::job(&writer.conn, id)?.filter(|(job, _)| job.tenant == tenant);
    let (mut job, _) = found.ok_or(Refusal::NotFound)?;
    if job.state == JobState::Running {
        told::check_end(&writer.cache, ending, job.seen, job.done)?;
        audit::check(&writer.cache, along)?;
        told::tell_end(writer, ending)?;
        audit::write(writer, along)?;
        job.state = JobState::Cancelled;
        job.finished_at = Some(at);
        writer
            .conn
            .prepare_cached("update job set state = ?2, finished_at = ?3 where id = ?1")?
            .execute(params![id.as_bytes().as_slice(), job_code(job.state), at.as_millis()])?;
    }
    Ok(job)
}

/// Does what a bite says, unless another was faster.
pub(crate) fn advance(writer: &mut Writer, bite: &Bite) -> Result<Bitten, Failure> {
    let (job, cursor) = jobs::job(&writer.conn, bite.job)?.ok_or(Refusal::NotFound)?;
    if job.state != JobState::Running || cursor != bite.expected {
        let state = job.state;
        return Ok(Bitten { done: 0, subscriptions: Vec::new(), state, recall: None });
    }
    let known = *writer.cache.tenants.get(&job.tenant).ok_or(Refusal::NotFound)?;
    let tenant = known.no;
    let ending = bite.ending.as_ref().filter(|_| bite.ends.is_some() && bite.removes.is_none());
    told::check_end(&writer.cache, ending, job.seen, job.done)?;
    told::tell_end(writer, ending)?;
    let mut subscriptions: Vec<SubscriptionId> = Vec::new();
    let (mut done, mut recalls) = (0, Vec::new());
    let mut finder = jobs::Finder::default();
    for deed in &bite.deeds {
        if let Some(recalled) =
            redeliver(writer, &mut finder, tenant, (deed, job.work.budget()), bite.at)?
        {
            done += 1;
            recalls.extend(recalled);
            subscriptions.push(deed.subscription);
        }
    }
    if let Some(Expunges { events, responses }) = &bite.expunges {
        done += super::expunge::events(&writer.conn, tenant, events, *responses, bite.at)?;
    }
    if let Some(moves) = &bite.moves {
        let moved = lanes::move_many(writer, job.tenant, moves, bite.at)?;
        done += moved.done;
        recalls.extend(moved.recalls);
        subscriptions.extend(moved.due);
    }
    let (mut ends, mut buried) = (bite.ends, None);
    if let Some(limit) = bite.removes {
        let removed = tenant::remove(writer, &job, known, limit, bite)?;
        done += removed.rows;
        buried = removed.buried;
        ends = buried.map(|_| JobState::Done);
    }
    subscriptions.sort_unstable();
    subscriptions.dedup();
    let state = ends.unwrap_or(JobState::Running);
    writer
        .conn
        .prepare_cached(
            "update job set state = ?2, finished_at = ?3, seen = seen + ?4, done = done + ?5, cursor = ?6, \
             problem = ?7 where id = ?1",
        )?
        .execute(params![
            bite.job.as_bytes().as_slice(),
            job_code(state),
            ends.map(|_| bite.at.as_millis()),
            int(bite.seen),
            int(done as u64),
            bite.cursor.map(row_of),
            bite.problem,
        ])?;
    let recall = lanes::recall(writer, &recalls, bite.at)?.or(buried);
    Ok(Bitten { done, subscriptions, state, recall })
}

/// Whose copies are out of date because of it; `None` when nothing was done.
fn redeliver(
    writer: &mut Writer,
    finder: &mut jobs::Finder,
    tenant: i64,
    (deed, budget): (&Redelivery, Budget),
    at: Timestamp,
) -> Result<Option<Vec<Recall>>, Failure> {
    let Some(known) = writer.cache.subscriptions.get(&deed.subscription).copied() else {
        return Ok(None);
    };
    let event = neighbours(&writer.conn, tenant, deed.event)?;
    let Some(event) = event.filter(|_| known.tenant == tenant) else { return Ok(None) };
    let expunged = "select expunged_at is not null from event where no = ?1";
    if writer.conn.prepare_cached(expunged)?.query_row([event.no], |row| row.get(0))? {
        return Ok(None);
    }
    let there = finder.find(&writer.conn, &event, known.no)?;
    match deed.status.decide(there.and_then(|(_, state)| state_of(state))) {
        Replayed::Left => Ok(None),
        Replayed::Retried => {
            let Some((seq, _)) = there else { return Ok(None) };
            let Writer { conn, log, .. } = writer;
            match lanes::revive(conn, log, seq, budget, at) {
                Ok(recalls) => Ok(Some(recalls)),
                Err(Failure::Refused(_)) => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        Replayed::Made => {
            make(writer, (tenant, &event, known.no), (deed, budget), at)?;
            Ok(Some(Vec::new()))
        }
    }
}

/// One that comes last in its lane.
fn make(
    writer: &mut Writer,
    (tenant, event, subscription): (i64, &Neighbours, i64),
    (deed, budget): (&Redelivery, Budget),
    at: Timestamp,
) -> Result<(), Failure> {
    let later = event.deliver_at.filter(|later| *later > at);
    let (at, event) = (later.unwrap_or(at), event.no);
    let Writer { conn, log, numbers, .. } = writer;
    numbers.seq += 1;
    let seq = numbers.seq;
    let id = deed.id.as_bytes().as_slice();
    match &deed.lane {
        Some(lane) if later.is_some() => {
            let values = params![seq, id, event, tenant, subscription, NEVER];
            conn.prepare_cached(sql::INSERT_DELIVERY)?.execute(values)?;
            entry::schedule(conn, seq, at, lane.as_str())?;
        }
        None => {
            let values = params![seq, id, event, tenant, subscription, due(at)];
            conn.prepare_cached(sql::INSERT_DELIVERY)?.execute(values)?;
        }
        Some(lane) => {
            let values = params![seq, id, event, tenant, subscription, due(at), lane.as_str()];
            conn.prepare_cached(sql::INSERT_IN_LANE)?.query_row(values, |_| Ok(()))?;
        }
    }
    conn.prepare_cached("update delivery set budget_began = ?2, budget_base = ?3 where seq = ?1")?
        .execute(params![seq, at.as_millis(), base_code(0, budget)])?;
    conn.prepare_cached(sql::INSERT_LATER)?.execute(params![event, seq, subscription])?;
    log.made(tenant);
    Ok(())
}
