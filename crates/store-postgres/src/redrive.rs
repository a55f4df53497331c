//! Bulk redrives: many dead letters back to work, a bite at a time.
//!
//! Dead letters are visited by delivery id, and the last one visited is written down in the same
//! transaction as what was moved. So each is moved at most once, whoever advances the redrive and
//! however often it is interrupted.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::delivery::Stored;
use posthorn_domain::{
    Budget, Redrive, RedriveFilter, RedriveId, RedriveState, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Advanced, Along, Ending, Page, RedrivePage, Refusal, Result};
use tokio_postgres::Row;

use crate::codec::{FIRST_UID, LAST_UID, Reader, Uid, dead_code, json, lane_of, limit};
use crate::expunge::marked;
use crate::failure::{Corrupt, Outcome};
use crate::moves::{Revived, recall, revive, stored};
use crate::session::{Operation, Param, Session, allow_slow, begin, commit, execute, query};
use crate::{audit, lock, sql, told};

const CREATE: Operation = Operation::write("create_redrive", "start a redrive").slow();
const FIND: Operation = Operation::read("redrive", "read a redrive");
const LIST: Operation = Operation::read("redrives", "list redrives");
const RUNNING: Operation = Operation::read("running_redrives", "find redrives to continue");
const CANCEL: Operation = Operation::write("cancel_redrive", "stop a redrive");
const ADVANCE: Operation = Operation::write("advance_redrive", "continue a redrive");

const fn state_number(state: RedriveState) -> i16 {
    match state {
        RedriveState::Running => 0,
        RedriveState::Done => 1,
        RedriveState::Cancelled => 2,
    }
}

fn redrive_of(row: &Row) -> Result<Redrive, Corrupt> {
    let reader = Reader::new(row, "redrive", "id");
    let state = match reader.get::<i16>("state")? {
        0 => RedriveState::Running,
        1 => RedriveState::Done,
        2 => RedriveState::Cancelled,
        other => return Err(reader.corrupt("state", format!("{other} is not a state"))),
    };
    Ok(Redrive {
        id: reader.id("id")?,
        tenant: reader.id("tenant")?,
        filter: reader.json("filter")?,
        per_second: reader.small("per_second")?,
        state,
        total: reader.number("total")?,
        moved: reader.number("moved")?,
        created_at: reader.time("created_at")?,
        finished_at: reader.time_maybe("finished_at")?,
    })
}

/// The filter as parameters.
struct Conditions {
    tenant: Uid,
    subscription: Option<Uid>,
    state: Option<i16>,
    since: i64,
    until: i64,
}

impl Conditions {
    fn of(tenant: TenantId, filter: &RedriveFilter) -> Self {
        Self {
            tenant: tenant.into(),
            subscription: filter.subscription.map(Uid::from),
            state: filter.reason.map(dead_code),
            since: filter.since.map_or(i64::MIN, Timestamp::as_millis),
            until: filter.until.map_or(i64::MAX, Timestamp::as_millis),
        }
    }
}

pub(crate) async fn create(session: &Session, redrive: Redrive, along: Along) -> Result<Redrive> {
    told::prepare(session, &along.told).await?;
    let new = Arc::new((redrive, along));
    session
        .run(CREATE, move |client| {
            let new = Arc::clone(&new);
            Box::pin(async move {
                let (mut redrive, along) = (new.0.clone(), &new.1);
                begin(client).await?;
                // Held until the commit, so that a deletion which begins meanwhile finds the redrive.
                let own = lock::tenant_slot(redrive.tenant);
                let slots = lock::sorted(told::tenant_slots(&along.told).into_iter().chain([own]));
                lock::share(client, lock::TENANTS, &slots).await?;
                let found =
                    query(client, sql::TENANT_CLOSED, &[&Uid::from(redrive.tenant)]).await?;
                if found.first().map_or(Ok(true), |row| row.try_get(0))? {
                    return Err(Refusal::NotFound.into());
                }
                audit::hold(client, &[&along.told]).await?;
                allow_slow(client).await?;
                let c = Conditions::of(redrive.tenant, &redrive.filter);
                let params: [Param<'_>; 5] =
                    [&c.tenant, &c.subscription, &c.state, &c.since, &c.until];
                let rows = query(client, sql::REDRIVE_COUNT, &params).await?;
                let total: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
                redrive.total = u64::try_from(total).unwrap_or(0);
                insert(client, &redrive).await?;
                audit::write(client, along).await?;
                commit(client).await?;
                Ok(redrive)
            })
        })
        .await
}

async fn insert(client: &Object, redrive: &Redrive) -> Outcome<()> {
    let created = execute(
        client,
        sql::REDRIVE_CREATE,
        &[
            &Uid::from(redrive.id),
            &Uid::from(redrive.tenant),
            &json(&redrive.filter),
            &i32::try_from(redrive.per_second).unwrap_or(i32::MAX),
            &state_number(redrive.state),
            &i64::try_from(redrive.total).unwrap_or(i64::MAX),
            &i64::try_from(redrive.moved).unwrap_or(i64::MAX),
            &redrive.created_at.as_millis(),
            &redrive.finished_at.map(Timestamp::as_millis),
        ],
    )
    .await?;
    if created == 0 { Err(Refusal::AlreadyExists.into()) } else { Ok(()) }
}

async fn read(client: &Object, tenant: TenantId, id: RedriveId) -> Outcome<Option<Redrive>> {
    let params: [Param<'_>; 2] = [&Uid::from(tenant), &Uid::from(id)];
    let rows = query(client, sql::REDRIVE_FIND, &params).await?;
    Ok(rows.first().map(redrive_of).transpose()?)
}

pub(crate) async fn find(
    session: &Session,
    tenant: TenantId,
    id: RedriveId,
) -> Result<Option<Redrive>> {
    session.run(FIND, move |client| Box::pin(read(client, tenant, id))).await
}

pub(crate) async fn list(
    session: &Session,
    tenant: TenantId,
    page: RedrivePage,
) -> Result<Page<Redrive>> {
    session
        .run(LIST, move |client| {
            Box::pin(async move {
                let before = page.before.map_or(LAST_UID, Uid::from);
                // One more, to see whether more follow.
                let max = limit(page.limit.saturating_add(1));
                let params: [Param<'_>; 3] = [&Uid::from(tenant), &before, &max];
                let rows = query(client, sql::REDRIVE_LIST, &params).await?;
                let mut items = rows.iter().map(redrive_of).collect::<Result<Vec<_>, _>>()?;
                let more = items.len() > page.limit;
                items.truncate(page.limit);
                Ok(Page { items, more, ..Page::empty() })
            })
        })
        .await
}

pub(crate) async fn running(session: &Session, max: usize) -> Result<Vec<Redrive>> {
    session
        .run(RUNNING, move |client| {
            Box::pin(async move {
                let rows = query(client, sql::REDRIVE_RUNNING, &[&limit(max)]).await?;
                Ok(rows.iter().map(redrive_of).collect::<Result<_, _>>()?)
            })
        })
        .await
}

pub(crate) async fn cancel(
    session: &Session,
    tenant: TenantId,
    id: RedriveId,
    at: Timestamp,
    ending: Option<Ending>,
    along: Along,
) -> Result<Redrive> {
    let told = ending.iter().flat_map(|ending| &ending.told);
    told::prepare(session, told.chain(&along.told)).await?;
    let along = Arc::new((ending, along));
    session
        .run(CANCEL, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                let (ending, along) = &*along;
                begin(client).await?;
                let rows = query(client, sql::REDRIVE_HOLD, &[&Uid::from(id)]).await?;
                let redrive = redrive_of(rows.first().ok_or(Refusal::NotFound)?)?;
                if redrive.tenant == tenant && redrive.state == RedriveState::Running {
                    let ended = ending.as_ref().map_or(&[][..], |ending| &ending.told);
                    audit::hold(client, &[ended, &along.told]).await?;
                    if let Some(ending) = ending {
                        told::check_end(ending, redrive.total, redrive.moved)?;
                        told::tell(client, &ending.told).await?;
                    }
                    audit::write(client, along).await?;
                }
                let state = state_number(RedriveState::Cancelled);
                let (owner, uid) = (Uid::from(tenant), Uid::from(id));
                let params: [Param<'_>; 4] = [&owner, &uid, &state, &at.as_millis()];
                execute(client, sql::REDRIVE_CANCEL, &params).await?;
                let redrive = read(client, tenant, id).await?.ok_or(Refusal::NotFound)?;
                commit(client).await?;
                Ok(redrive)
            })
        })
        .await
}

pub(crate) async fn advance(
    session: &Session,
    id: RedriveId,
    bite: usize,
    at: Timestamp,
    ending: Option<Ending>,
) -> Result<Advanced> {
    told::prepare(session, ending.iter().flat_map(|ending| &ending.told)).await?;
    let ending = Arc::new(ending);
    session
        .run(ADVANCE, move |client| {
            let ending = Arc::clone(&ending);
            Box::pin(async move {
                begin(client).await?;
                let rows = query(client, sql::REDRIVE_HOLD, &[&Uid::from(id)]).await?;
                let row = rows.first().ok_or(Refusal::NotFound)?;
                let redrive = redrive_of(row)?;
                let cursor: Option<Uid> = row.try_get("cursor")?;
                let advanced = match redrive.state {
                    RedriveState::Running => {
                        let ending = Option::as_ref(&ending);
                        bite_off(client, &redrive, cursor, bite, at, ending).await?
                    }
                    state => Advanced { moved: 0, subscriptions: Vec::new(), state, recall: None },
                };
                commit(client).await?;
                Ok(advanced)
            })
        })
        .await
}

async fn bite_off(
    client: &Object,
    redrive: &Redrive,
    cursor: Option<Uid>,
    bite: usize,
    at: Timestamp,
    ending: Option<&Ending>,
) -> Outcome<Advanced> {
    // So that no subscription is deleted between here and the commit; and those of what may be told.
    let told = ending.map_or(&[][..], |ending| &ending.told);
    let tenants = told::tenant_slots(told).into_iter().chain([lock::tenant_slot(redrive.tenant)]);
    lock::share(client, lock::TENANTS, &lock::sorted(tenants)).await?;
    let c = Conditions::of(redrive.tenant, &redrive.filter);
    let (from, max) = (cursor.unwrap_or(FIRST_UID), limit(bite));
    let params: [Param<'_>; 7] =
        [&c.tenant, &c.subscription, &c.state, &c.since, &c.until, &from, &max];
    let rows = query(client, sql::REDRIVE_NEXT, &params).await?;
    let mut ids: Vec<Uid> = Vec::with_capacity(rows.len());
    let mut slots = Vec::new();
    for row in &rows {
        let reader = Reader::new(row, "delivery_done", "id");
        ids.push(reader.get("id")?);
        let subscription: SubscriptionId = reader.id("subscription")?;
        if let Some(lane) = lane_of(&reader, "lane")? {
            slots.push(i32::from(lock::lane_slot(subscription, &lane)));
        }
    }
    // What is told is the whole of it: then the end does nothing else.
    let ends = if ending.is_some() { ids.is_empty() } else { ids.len() < bite };
    if ends && let Some(ending) = ending {
        told::check_end(ending, redrive.total, redrive.moved)?;
        slots = told::lane_slots(told);
    }
    lock::hold(client, lock::LANES, &lock::sorted(slots)).await?;
    if ends {
        told::tell(client, told).await?;
    }
    let dead = still_dead(client, redrive, &ids).await?;
    let Revived { back, recalls, .. } = revive(client, dead, Budget::Fresh, at).await?;

    let state = if ends { RedriveState::Done } else { RedriveState::Running };
    let finished = (state == RedriveState::Done).then(|| at.as_millis());
    let moved = limit(back.len());
    let id = Uid::from(redrive.id);
    let params: [Param<'_>; 5] = [&id, &moved, &ids.last(), &state_number(state), &finished];
    execute(client, sql::REDRIVE_PROGRESS, &params).await?;
    let mut subscriptions: Vec<SubscriptionId> = back.iter().map(|d| d.subscription).collect();
    subscriptions.sort_unstable();
    subscriptions.dedup();
    let recall = recall(client, &recalls, at).await?;
    Ok(Advanced { moved: back.len(), subscriptions, state, recall })
}

/// Those that nobody brought back, cancelled or expunged while we waited for the lanes; they stay so now.
async fn still_dead(client: &Object, redrive: &Redrive, ids: &[Uid]) -> Outcome<Vec<Stored>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let params: [Param<'_>; 2] = [&Uid::from(redrive.tenant), &ids];
    let mut dead = Vec::with_capacity(ids.len());
    for row in &query(client, sql::DONE_FIND, &params).await? {
        let stored = stored(row)?;
        if matches!(stored.delivery.state, posthorn_domain::DeliveryState::Dead(_)) {
            dead.push(stored);
        }
    }
    let dead = marked(client, redrive.tenant, dead).await?;
    Ok(dead.into_iter().filter(|stored| !stored.expunged).collect())
}
