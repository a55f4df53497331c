//! Questions about one event or one delivery. They read one snapshot and never lock. Lists: [`crate::log`].

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Attempt, Delivery, DeliveryId, Event, EventId, TenantId};
use posthorn_store::Result;

use crate::codec::{self, Uid};
use crate::failure::Outcome;
use crate::session::{Operation, Param, Session, query};
use crate::sql;

const EVENT: Operation = Operation::read("event", "read an event");
const EVENTS: Operation = Operation::read("events_by_id", "read events");
const DELIVERY: Operation = Operation::read("delivery", "read a delivery");
const DELIVERIES: Operation = Operation::read("deliveries_by_id", "read deliveries");
const ATTEMPTS: Operation = Operation::read("attempts", "read attempts");
const PING: Operation = Operation::read("ping", "reach the database");

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

pub(crate) async fn events_by_id(
    session: &Session,
    tenant: TenantId,
    ids: &[EventId],
) -> Result<Vec<Event>> {
    let ids: Arc<[Uid]> = ids.iter().map(|id| Uid::from(*id)).collect();
    session
        .run(EVENTS, move |client| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&Uid::from(tenant), &&*ids];
                let rows = query(client, sql::EVENTS_BY_ID, &params).await?;
                Ok(rows.iter().map(|row| codec::event(row, "id")).collect::<Result<_, _>>()?)
            })
        })
        .await
}

/// Both tables are read in one statement, so that a delivery on its way from one to the other is
/// seen exactly once.
pub(crate) async fn by_ids(
    client: &Object,
    tenant: TenantId,
    ids: &[Uid],
) -> Outcome<Vec<Delivery>> {
    let rows = query(client, sql::DELIVERIES_OF, &[&Uid::from(tenant), &ids]).await?;
    Ok(rows.iter().map(codec::delivery).collect::<Result<_, _>>()?)
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

pub(crate) async fn deliveries_by_id(
    session: &Session,
    tenant: TenantId,
    ids: &[DeliveryId],
) -> Result<Vec<Delivery>> {
    let ids: Arc<[Uid]> = ids.iter().map(|id| Uid::from(*id)).collect();
    session
        .run(DELIVERIES, move |client| {
            let ids = Arc::clone(&ids);
            Box::pin(async move { by_ids(client, tenant, &ids).await })
        })
        .await
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

pub(crate) async fn ping(session: &Session) -> Result<()> {
    session
        .run(PING, |client| Box::pin(async move { Ok(client.batch_execute("select 1").await?) }))
        .await
}
