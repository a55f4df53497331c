//! Removing what was said: payloads of events, what attempts sent of them, and what receivers answered.
//!
//! # Theory of operation
//! Whoever brings a delivery back holds its row before; whoever makes one holds its event. So an event is expunged by
//! holding both, in the order of `lock`: first the ended deliveries that it lists, then the event, which is then
//! looked at once more. Who comes later finds what was committed, because it looks again after it got hold of the
//! row ([`marked`]): the look that waited for the row is older than the change.
//!
//! PostgreSQL keeps old versions of rows until they are vacuumed, and its log as long as its settings say.
//!
//! # What it must not know
//! Which events a job is about.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::delivery::Stored;
use posthorn_domain::{DeliveryId, Event, EventId, TenantId, Timestamp};
use posthorn_store::{Along, Refusal, Result};

use crate::codec::{self, Uid};
use crate::failure::Outcome;
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{audit, sql, told};

const EVENT: Operation = Operation::write("expunge_event", "remove a payload");
const RESPONSE: Operation = Operation::write("expunge_response", "remove a response");

/// Says of ended deliveries, which the caller holds, whether the payload of their event was removed.
pub(crate) async fn marked(
    client: &Object,
    tenant: TenantId,
    mut ended: Vec<Stored>,
) -> Outcome<Vec<Stored>> {
    let events: BTreeSet<Uid> = ended.iter().map(|stored| stored.delivery.event.into()).collect();
    if events.is_empty() {
        return Ok(ended);
    }
    let events: Vec<Uid> = events.into_iter().collect();
    let rows = query(client, sql::EXPUNGED, &[&Uid::from(tenant), &events]).await?;
    let gone = rows.iter().map(|row| row.try_get::<_, Uid>(0).map(EventId::from));
    let gone: HashSet<EventId> = gone.collect::<Result<_, _>>()?;
    for stored in &mut ended {
        stored.expunged = gone.contains(&stored.delivery.event);
    }
    Ok(ended)
}

pub(crate) async fn event(
    session: &Session,
    tenant: TenantId,
    id: EventId,
    responses: bool,
    at: Timestamp,
    along: Along,
) -> Result<Event> {
    told::prepare(session, &along.told).await?;
    let along = Arc::new(along);
    session
        .run(EVENT, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                begin(client).await?;
                audit::hold(client, &[&along.told]).await?;
                let Expunged { unfinished, done } =
                    expunge(client, tenant, &[id], responses, at).await?;
                if unfinished {
                    return Err(Refusal::Unfinished.into());
                }
                if done > 0 {
                    audit::write(client, &along).await?;
                }
                let params: [Param<'_>; 2] = [&Uid::from(tenant), &Uid::from(id)];
                let rows = query(client, sql::EVENT_FIND, &params).await?;
                let event = codec::event(rows.first().ok_or(Refusal::NotFound)?, "id")?;
                commit(client).await?;
                Ok(event)
            })
        })
        .await
}

/// Removes payloads of several events, inside a transaction of the caller; of how many something went. Those that
/// are not there, or have unfinished deliveries, are passed over.
pub(crate) async fn many(
    client: &Object,
    tenant: TenantId,
    ids: &[EventId],
    responses: bool,
    at: Timestamp,
) -> Outcome<usize> {
    Ok(expunge(client, tenant, ids, responses, at).await?.done)
}

struct Expunged {
    /// Of how many something went.
    done: usize,
    /// Whether one has deliveries that have not ended.
    unfinished: bool,
}

struct Listed {
    deliveries: Vec<Uid>,
    unfinished: bool,
}

/// `held` are ended deliveries that nobody else can bring back.
async fn look(
    client: &Object,
    tenant: Uid,
    events: &[Uid],
    held: Option<&[Uid]>,
) -> Outcome<HashMap<Uid, Listed>> {
    let rows = query(client, sql::EXPUNGE_LOOK, &[&tenant, &events, &held]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let (deliveries, unfinished) = (row.try_get("deliveries")?, row.try_get("unfinished")?);
        found.insert(row.try_get("id")?, Listed { deliveries, unfinished });
    }
    Ok(found)
}

async fn expunge(
    client: &Object,
    tenant: TenantId,
    ids: &[EventId],
    responses: bool,
    at: Timestamp,
) -> Outcome<Expunged> {
    let tenant = Uid::from(tenant);
    let events: BTreeSet<Uid> = ids.iter().map(|id| Uid::from(*id)).collect();
    let events: Vec<Uid> = events.into_iter().collect();
    let first = look(client, tenant, &events, None).await?;
    let events: Vec<Uid> =
        events.into_iter().filter(|id| first.get(id).is_some_and(|it| !it.unfinished)).collect();
    let unfinished = first.values().any(|listed| listed.unfinished);
    if events.is_empty() {
        return Ok(Expunged { done: 0, unfinished });
    }
    let listed = events.iter().filter_map(|id| first.get(id)).flat_map(|it| &it.deliveries);
    let ended: BTreeSet<Uid> = listed.copied().collect();
    let ended: Vec<Uid> = ended.into_iter().collect();
    let held = query(client, sql::DONE_FIND, &[&tenant, &ended]).await?;
    let held: Vec<Uid> = held.iter().map(|row| row.try_get("id")).collect::<Result<_, _>>()?;
    query(client, sql::REPLAY_HOLD, &[&tenant, &events]).await?;
    // Somebody may have brought one back, or made another, before we held them; it may even have ended again.
    let now = look(client, tenant, &events, Some(&held)).await?;
    let unfinished = unfinished || now.values().any(|listed| listed.unfinished);
    let (mut free, mut deliveries) = (Vec::new(), HashMap::new());
    for (id, listed) in &now {
        if !listed.unfinished {
            free.push(*id);
            deliveries.extend(listed.deliveries.iter().map(|delivery| (*delivery, *id)));
        }
    }
    free.sort_unstable();
    let params: [Param<'_>; 3] = [&tenant, &free, &at.as_millis()];
    let mut did: HashSet<Uid> = HashSet::new();
    for row in &query(client, sql::EXPUNGE_EVENTS, &params).await? {
        did.insert(row.try_get(0)?);
    }
    let mut own: Vec<Uid> = deliveries.keys().copied().collect();
    own.sort_unstable();
    execute(client, sql::EXPUNGE_SENT, &[&own]).await?;
    if responses {
        for row in &query(client, sql::EXPUNGE_RESPONSES, &[&own, &at.as_millis()]).await? {
            did.extend(deliveries.get(&row.try_get::<_, Uid>(0)?));
        }
    }
    Ok(Expunged { done: did.len(), unfinished })
}

pub(crate) async fn response(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
    number: u32,
    at: Timestamp,
    along: Along,
) -> Result<()> {
    told::prepare(session, &along.told).await?;
    let along = Arc::new(along);
    session
        .run(RESPONSE, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                let Ok(number) = i32::try_from(number) else {
                    return Err(Refusal::NotFound.into());
                };
                begin(client).await?;
                audit::hold(client, &[&along.told]).await?;
                let params: [Param<'_>; 2] = [&Uid::from(id), &Uid::from(tenant)];
                let rows = query(client, sql::DELIVERY_EXISTS, &params).await?;
                if rows.first().map(|row| row.try_get(0)).transpose()? != Some(true) {
                    return Err(Refusal::NotFound.into());
                }
                let params: [Param<'_>; 3] = [&Uid::from(id), &number, &at.as_millis()];
                let rows = query(client, sql::EXPUNGE_RESPONSE, &params).await?;
                let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
                if found == 0 {
                    return Err(Refusal::NotFound.into());
                }
                let cleared: i64 = rows.first().map_or(Ok(0), |row| row.try_get(1))?;
                if cleared > 0 {
                    audit::write(client, &along).await?;
                }
                commit(client).await?;
                Ok(())
            })
        })
        .await
}
