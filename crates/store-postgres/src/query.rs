//! Questions about the past and the present. They read one snapshot and never lock.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Attempt, Delivery, DeliveryId, Event, EventId, TenantId};
use posthorn_store::{Counts, DeliveryFilter, EventFilter, Page, Result, StateKind};
use tokio_postgres::Row;

use crate::codec::{self, LAST_UID, Reader, Uid, kind_condition, limit, state_of};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, allow_slow, begin_snapshot, commit, query};
use crate::sql;

const EVENT: Operation = Operation::read("event", "read an event");
const EVENTS: Operation = Operation::read("events", "list events");
const DELIVERY: Operation = Operation::read("delivery", "read a delivery");
const DELIVERIES: Operation = Operation::read("deliveries", "list deliveries");
const ATTEMPTS: Operation = Operation::read("attempts", "read attempts");
const COUNTS: Operation = Operation::read("counts", "count deliveries").slow();
const PENDING_BY_TENANT: Operation =
    Operation::read("pending_by_tenant", "count unfinished deliveries").slow();
const PING: Operation = Operation::read("ping", "reach the database");

/// A page of what was read with one row too many.
fn page<T>(mut items: Vec<T>, max: usize) -> Page<T> {
    let more = items.len() > max;
    items.truncate(max);
    Page { items, more }
}

pub(crate) async fn event(
    session: &Session,
    tenant: TenantId,
    id: EventId,
) -> Result<Option<Event>> {
    session
        .run(EVENT, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&Uid::from(tenant), &Uid::from(id)];
                let rows = query(client, sql::EVENT_FIND, &params).await?;
                Ok(rows.first().map(|row| codec::event(row, "id")).transpose()?)
            })
        })
        .await
}

pub(crate) async fn events(
    session: &Session,
    tenant: TenantId,
    filter: EventFilter,
) -> Result<Page<Event>> {
    let filter = Arc::new(filter);
    session
        .run(EVENTS, move |client| {
            let filter = Arc::clone(&filter);
            Box::pin(async move {
                let before = filter.before.map_or(LAST_UID, Uid::from);
                let topic = filter.topic.as_ref().map(|topic| topic.as_str());
                let kind = filter.event_type.as_ref().map(|kind| kind.as_str());
                let max = limit(filter.limit.saturating_add(1));
                let owner = Uid::from(tenant);
                let params: [Param<'_>; 5] = [&owner, &before, &topic, &kind, &max];
                let rows = query(client, sql::EVENT_LIST, &params).await?;
                let found: Result<Vec<Event>, Corrupt> =
                    rows.iter().map(|row| codec::event(row, "id")).collect();
                Ok(page(found?, filter.limit))
            })
        })
        .await
}

fn deliveries_in(rows: &[Row]) -> Result<Vec<Delivery>, Corrupt> {
    rows.iter().map(codec::delivery).collect()
}

/// Both tables are read in one statement, so that a delivery on its way from one to the other is
/// seen exactly once.
async fn by_ids(client: &Object, tenant: TenantId, ids: &[Uid]) -> Outcome<Vec<Delivery>> {
    let rows = query(client, sql::DELIVERIES_OF, &[&Uid::from(tenant), &ids]).await?;
    Ok(deliveries_in(&rows)?)
}

pub(crate) async fn delivery(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Option<Delivery>> {
    session
        .run(DELIVERY, move |client| {
            Box::pin(async move {
                let mut found = by_ids(client, tenant, &[id.into()]).await?;
                Ok(found.pop())
            })
        })
        .await
}

pub(crate) async fn deliveries(
    session: &Session,
    tenant: TenantId,
    filter: DeliveryFilter,
) -> Result<Page<Delivery>> {
    let filter = Arc::new(filter);
    session
        .run(DELIVERIES, move |client| {
            let filter = Arc::clone(&filter);
            Box::pin(async move {
                let found = match filter.event {
                    Some(event) => of_event(client, tenant, event, &filter).await?,
                    None => listed(client, tenant, &filter).await?,
                };
                Ok(page(found, filter.limit))
            })
        })
        .await
}

/// The event itself knows its deliveries.
async fn of_event(
    client: &Object,
    tenant: TenantId,
    event: EventId,
    filter: &DeliveryFilter,
) -> Outcome<Vec<Delivery>> {
    let params: [Param<'_>; 2] = [&Uid::from(tenant), &Uid::from(event)];
    let rows = query(client, sql::EVENT_DELIVERIES, &params).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let ids: Vec<Uid> = Reader::new(row, "event", "id").get("deliveries")?;
    let mut found = by_ids(client, tenant, &ids).await?;
    found.retain(|delivery| {
        filter.subscription.is_none_or(|wanted| wanted == delivery.subscription)
            && filter.state.is_none_or(|kind| kind == StateKind::of(delivery.state))
            && filter.before.is_none_or(|before| delivery.id < before)
    });
    found.sort_unstable_by_key(|delivery| std::cmp::Reverse(delivery.id));
    Ok(found)
}

async fn listed(
    client: &Object,
    tenant: TenantId,
    filter: &DeliveryFilter,
) -> Outcome<Vec<Delivery>> {
    let text = list_sql(filter.subscription.is_some(), filter.state);
    let before = filter.before.map_or(LAST_UID, Uid::from);
    let max = limit(filter.limit.saturating_add(1));
    let owner = Uid::from(tenant);
    let subscription = filter.subscription.map(Uid::from);
    let mut params: Vec<Param<'_>> = vec![&owner, &before, &max];
    if let Some(subscription) = &subscription {
        params.push(subscription);
    }
    Ok(deliveries_in(&query(client, &text, &params).await?)?)
}

/// The statement of a list: with the conditions spelled out, each variant has a plan of its own,
/// from the primary key, from `delivery_done_subscription` or from `delivery_done_dead`, backwards.
pub(crate) fn list_sql(by_subscription: bool, kind: Option<StateKind>) -> String {
    let only = if by_subscription { " and subscription = $4" } else { "" };
    let live = match kind {
        None => " and true",
        Some(StateKind::Pending) => " and g.id is null",
        Some(StateKind::Cancelled) => " and g.id is not null",
        Some(StateKind::Delivered | StateKind::Dead) => " and false",
    };
    let done = kind.map(|kind| format!(" and {}", kind_condition(kind))).unwrap_or_default();
    format!(
        "select * from (
            (select
                l.id, l.event, l.subscription, l.tenant, l.lane, l.seq,
                case when g.id is null then l.state else 20::int2 end as state,
                case when g.id is null then l.due_at else 9223372036854775807 end as due_at,
                l.attempts, l.budget_base, l.budget_began, l.revival, l.created_at,
                g.deleted_at as ended_at
            from delivery_live l
            left join subscription_gone g on g.id = l.subscription
            where l.tenant = $1 and l.id < $2{only}{live}
            order by l.id desc
            limit $3::int8)
            union all
            (select
                id, event, subscription, tenant, lane, seq, state, 9223372036854775807,
                attempts, budget_base, budget_began, revival, created_at, ended_at
            from delivery_done
            where tenant = $1 and id < $2{only}{done}
            order by id desc
            limit $3::int8)
        ) as found
        order by id desc
        limit $3::int8"
    )
}

pub(crate) async fn attempts(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Vec<Attempt>> {
    session
        .run(ATTEMPTS, move |client| {
            Box::pin(async move {
                if by_ids(client, tenant, &[id.into()]).await?.is_empty() {
                    return Ok(Vec::new());
                }
                let rows = query(client, sql::ATTEMPTS, &[&Uid::from(id)]).await?;
                Ok(rows.iter().map(codec::attempt).collect::<Result<_, _>>()?)
            })
        })
        .await
}

pub(crate) async fn counts(session: &Session, tenant: Option<TenantId>) -> Result<Counts> {
    session
        .run(COUNTS, move |client| {
            Box::pin(async move {
                begin_snapshot(client).await?;
                allow_slow(client).await?;
                let owner = tenant.map(Uid::from);
                let rows = query(client, sql::COUNT_EVENTS, &[&owner]).await?;
                let mut counts = Counts::default();
                if let Some(row) = rows.first() {
                    counts.events = Reader::new(row, "event", "id").number("count")?;
                }
                for row in &query(client, sql::COUNT_DELIVERIES, &[&owner]).await? {
                    add(row, &mut counts)?;
                }
                commit(client).await?;
                Ok(counts)
            })
        })
        .await
}

pub(crate) async fn pending_by_tenant(session: &Session) -> Result<Vec<(TenantId, u64)>> {
    session
        .run(PENDING_BY_TENANT, move |client| {
            Box::pin(async move {
                begin_snapshot(client).await?;
                allow_slow(client).await?;
                let mut counts = Vec::new();
                for row in &query(client, sql::PENDING_BY_TENANT, &[]).await? {
                    let reader = Reader::new(row, "delivery_live", "tenant");
                    counts.push((reader.id("tenant")?, reader.number("number")?));
                }
                commit(client).await?;
                Ok(counts)
            })
        })
        .await
}

fn add(row: &Row, counts: &mut Counts) -> Result<(), Corrupt> {
    let reader = Reader::new(row, "delivery", "state");
    let code: i16 = reader.get("state")?;
    let state =
        state_of(code).ok_or_else(|| reader.corrupt("state", format!("{code} is not a state")))?;
    let number: u64 = reader.number("number")?;
    match StateKind::of(state) {
        StateKind::Pending => counts.pending += number,
        StateKind::Delivered => counts.delivered += number,
        StateKind::Dead => counts.dead += number,
        StateKind::Cancelled => counts.cancelled += number,
    }
    Ok(())
}

pub(crate) async fn ping(session: &Session) -> Result<()> {
    session
        .run(PING, |client| Box::pin(async move { Ok(client.batch_execute("select 1").await?) }))
        .await
}
