//! Jobs: durable bulk work on the history, written down with their progress. What a bite does to deliveries is
//! in `replay` and `moves`, what it removes in `expunge`.
//!
//! A job that advances is held, and a bite names the place it was prepared on. So each bite is done at most
//! once, whoever advances the job and however often it is interrupted.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{CatalogVersion, Job, JobId, JobState, TenantId, Timestamp};
use posthorn_store::{
    Along, Bite, Bitten, CatalogChange, Ending, Expunges, Listing, Order, Page, Place, Refusal,
    Result,
};
use tokio_postgres::Row;

use crate::catalog::{self, Written};
use crate::codec::{FIRST_UID, LAST_UID, Reader, Uid, json, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::moves::{move_many, recall};
use crate::replay::{Replayed, replay};
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{audit, expunge, lock, sql, tenant, told};

const CREATE: Operation = Operation::write("create_job", "start a job");
const FIND: Operation = Operation::read("job", "read a job");
const LIST: Operation = Operation::read("jobs", "list jobs");
const RUNNING: Operation = Operation::read("running_jobs", "find jobs to continue");
const CANCEL: Operation = Operation::write("cancel_job", "stop a job");
const ADVANCE: Operation = Operation::write("advance_job", "continue a job");

const fn state_number(state: JobState) -> i16 {
    match state {
        JobState::Running => 0,
        JobState::Done => 1,
        JobState::Cancelled => 2,
        JobState::Failed => 3,
    }
}

fn place_of(uid: Uid) -> Place {
    Place(u128::from_be_bytes(uid.0))
}

fn uid_of(place: Place) -> Uid {
    Uid(place.0.to_be_bytes())
}

fn job_of(row: &Row) -> Result<(Job, Option<Place>), Corrupt> {
    let reader = Reader::new(row, "job", "id");
    let state = match reader.get::<i16>("state")? {
        0 => JobState::Running,
        1 => JobState::Done,
        2 => JobState::Cancelled,
        3 => JobState::Failed,
        other => return Err(reader.corrupt("state", format!("{other} is not a state"))),
    };
    let job = Job {
        id: reader.id("id")?,
        tenant: reader.id("tenant")?,
        work: reader.json("work")?,
        per_second: reader.small("per_second")?,
        state,
        seen: reader.number("seen")?,
        done: reader.number("done")?,
        created_by: reader.get::<&str>("created_by")?.to_owned(),
        created_at: reader.time("created_at")?,
        finished_at: reader.time_maybe("finished_at")?,
        problem: reader.get::<Option<&str>>("problem")?.map(str::to_owned),
    };
    Ok((job, reader.get::<Option<Uid>>("cursor")?.map(place_of)))
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) async fn create(
    session: &Session,
    job: Job,
    change: Option<CatalogChange>,
    along: Along,
) -> Result<Option<CatalogVersion>> {
    told::prepare(session, &along.told).await?;
    let new = Arc::new((job, change, along));
    session
        .run(CREATE, move |client| {
            let new = Arc::clone(&new);
            Box::pin(async move {
                let (job, change, along) = &*new;
                begin(client).await?;
                let tenant = change.as_ref().and_then(CatalogChange::tenant);
                if tenant.is_none() {
                    // A deletion that begins meanwhile finds the job.
                    lock::share(client, lock::TENANTS, &[lock::tenant_slot(job.tenant)]).await?;
                }
                told::hold(client, tenant, &along.told).await?;
                insert(client, job).await?;
                audit::write(client, along).await?;
                // A change that is refused takes the job with it.
                let version = match change {
                    None => None,
                    Some(change) => match catalog::write(client, change).await? {
                        Written::Changed(version) => Some(version),
                        Written::Nothing { .. } => return Err(Refusal::AlreadyExists.into()),
                    },
                };
                commit(client).await?;
                Ok(version)
            })
        })
        .await
}

async fn insert(client: &Object, job: &Job) -> Outcome<()> {
    let id = Uid::from(job.id);
    let params: [Param<'_>; 11] = [
        &id,
        &Uid::from(job.tenant),
        &json(&job.work),
        &i32::try_from(job.per_second).unwrap_or(i32::MAX),
        &state_number(job.state),
        &count(job.seen),
        &count(job.done),
        &text(&job.created_by),
        &job.created_at.as_millis(),
        &job.finished_at.map(Timestamp::as_millis),
        &job.problem.as_deref().map(text),
    ];
    if execute(client, sql::JOB_CREATE, &params).await? > 0 {
        return Ok(());
    }
    let rows = query(client, sql::JOB_EXISTS, &[&id]).await?;
    match rows.first().map(|row| row.try_get(0)).transpose()? {
        Some(true) => Err(Refusal::AlreadyExists.into()),
        _ => Err(Refusal::NotFound.into()),
    }
}

async fn read(client: &Object, tenant: TenantId, id: JobId) -> Outcome<Option<Job>> {
    let params: [Param<'_>; 2] = [&Uid::from(tenant), &Uid::from(id)];
    let rows = query(client, sql::JOB_FIND, &params).await?;
    Ok(rows.first().map(job_of).transpose()?.map(|(job, _)| job))
}

pub(crate) async fn find(session: &Session, tenant: TenantId, id: JobId) -> Result<Option<Job>> {
    session.run(FIND, move |client| Box::pin(read(client, tenant, id))).await
}

pub(crate) async fn list(
    session: &Session,
    tenant: TenantId,
    listing: Listing,
) -> Result<Page<Job>> {
    session
        .run(LIST, move |client| {
            Box::pin(async move {
                let after = listing.after.map(uid_of);
                let (text, low, high) = match listing.order {
                    Order::NewestFirst => (sql::JOB_NEWEST, FIRST_UID, after.unwrap_or(LAST_UID)),
                    Order::OldestFirst => (sql::JOB_OLDEST, after.unwrap_or(FIRST_UID), LAST_UID),
                };
                // One more, to see whether more follow.
                let max = limit(listing.limit.saturating_add(1));
                let params: [Param<'_>; 4] = [&Uid::from(tenant), &low, &high, &max];
                let mut items = Vec::new();
                for row in &query(client, text, &params).await? {
                    items.push(job_of(row)?.0);
                }
                let more = items.len() > listing.limit;
                items.truncate(listing.limit);
                Ok(Page::of(items, |job| place_of(job.id.into()), more))
            })
        })
        .await
}

pub(crate) async fn running(session: &Session, max: usize) -> Result<Vec<(Job, Option<Place>)>> {
    session
        .run(RUNNING, move |client| {
            Box::pin(async move {
                let rows = query(client, sql::JOB_RUNNING, &[&limit(max)]).await?;
                Ok(rows.iter().map(job_of).collect::<Result<_, _>>()?)
            })
        })
        .await
}

pub(crate) async fn cancel(
    session: &Session,
    tenant: TenantId,
    id: JobId,
    at: Timestamp,
    ending: Option<Ending>,
    along: Along,
) -> Result<Job> {
    let told = ending.iter().flat_map(|ending| &ending.told);
    told::prepare(session, told.chain(&along.told)).await?;
    let along = Arc::new((ending, along));
    session
        .run(CANCEL, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                let (ending, along) = &*along;
                begin(client).await?;
                let rows = query(client, sql::JOB_HOLD, &[&Uid::from(id)]).await?;
                let (job, _) = job_of(rows.first().ok_or(Refusal::NotFound)?)?;
                if job.tenant == tenant && job.state == JobState::Running {
                    let ended = ending.as_ref().map_or(&[][..], |ending| &ending.told);
                    audit::hold(client, &[ended, &along.told]).await?;
                    if let Some(ending) = ending {
                        told::check_end(ending, job.seen, job.done)?;
                        told::tell(client, &ending.told).await?;
                    }
                    audit::write(client, along).await?;
                }
                let state = state_number(JobState::Cancelled);
                let (owner, uid) = (Uid::from(tenant), Uid::from(id));
                let params: [Param<'_>; 4] = [&owner, &uid, &state, &at.as_millis()];
                execute(client, sql::JOB_CANCEL, &params).await?;
                let job = read(client, tenant, id).await?.ok_or(Refusal::NotFound)?;
                commit(client).await?;
                Ok(job)
            })
        })
        .await
}

pub(crate) async fn advance(session: &Session, bite: Bite) -> Result<Bitten> {
    told::prepare(session, bite.ending.iter().flat_map(|ending| &ending.told)).await?;
    let bite = Arc::new(bite);
    session
        .run(ADVANCE, move |client| {
            let bite = Arc::clone(&bite);
            Box::pin(async move {
                begin(client).await?;
                let rows = query(client, sql::JOB_HOLD, &[&Uid::from(bite.job)]).await?;
                let (job, cursor) = job_of(rows.first().ok_or(Refusal::NotFound)?)?;
                let state = job.state;
                let bitten = match state == JobState::Running && cursor == bite.expected {
                    true => bite_off(client, &job, &bite).await?,
                    false => Bitten { done: 0, subscriptions: Vec::new(), state, recall: None },
                };
                commit(client).await?;
                Ok(bitten)
            })
        })
        .await
}

/// The caller holds the job, which ends.
async fn tell_end(client: &Object, job: &Job, ending: &Ending) -> Outcome<()> {
    told::check_end(ending, job.seen, job.done)?;
    told::hold(client, None, &ending.told).await?;
    told::tell(client, &ending.told).await
}

/// The caller holds the job.
async fn bite_off(client: &Object, job: &Job, bite: &Bite) -> Outcome<Bitten> {
    let Replayed { done, subscriptions, recalls } =
        replay(client, job.tenant, &bite.deeds, job.work.budget(), bite.at).await?;
    let expunged = match &bite.expunges {
        None => 0,
        Some(Expunges { events, responses }) => {
            expunge::many(client, job.tenant, events, *responses, bite.at).await?
        }
    };
    let (mut done, mut subscriptions, mut recalls) = (done + expunged, subscriptions, recalls);
    if let Some(moves) = &bite.moves {
        let moved = move_many(client, job.tenant, moves, bite.at).await?;
        done += moved.done;
        recalls.extend(moved.recalls);
        subscriptions.extend(moved.due);
        subscriptions.sort_unstable();
        subscriptions.dedup();
    }
    let ends = bite.ends.is_some() && bite.removes.is_none();
    if let Some(ending) = bite.ending.as_ref().filter(|_| ends) {
        tell_end(client, job, ending).await?;
    }
    let (mut ends, mut buried) = (bite.ends, None);
    if let Some(limit) = bite.removes {
        let removed = tenant::remove(client, job, limit, bite).await?;
        done += removed.rows;
        buried = removed.buried;
        ends = buried.map(|_| JobState::Done);
    }
    let state = ends.unwrap_or(JobState::Running);
    let finished = ends.map(|_| bite.at.as_millis());
    let params: [Param<'_>; 7] = [
        &Uid::from(bite.job),
        &count(bite.seen),
        &limit(done),
        &bite.cursor.map(uid_of),
        &state_number(state),
        &finished,
        &bite.problem.as_deref().map(text),
    ];
    execute(client, sql::JOB_PROGRESS, &params).await?;
    let recall = recall(client, &recalls, bite.at).await?.or(buried);
    Ok(Bitten { done, subscriptions, state, recall })
}
