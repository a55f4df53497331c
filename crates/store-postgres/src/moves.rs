//! What operators do by hand, and what a deleted subscription leaves to be done.
//!
//! None of this is frequent, so it is written for clarity: a few statements one after the other.
//! The lane's lock is taken before anything about the lane is read; since that needs the lane's
//! name, a delivery is looked up twice, and only the second look counts.

use deadpool_postgres::Object;
use posthorn_domain::{
    CancelReason, CatalogVersion, Delivery, DeliveryId, DeliveryState, Lane, Shard, TenantId,
    Timestamp,
};
use posthorn_store::{Moved, Recall, Refusal, Result, Swept, Work};
use tokio_postgres::Row;

use crate::codec::{self, PARKED, Reader, Uid, due, limit, state_code};
use crate::failure::Outcome;
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::work::work_of;
use crate::{catalog, lock, sql};

const CANCEL: Operation = Operation::write("cancel_delivery", "cancel a delivery");
const RETRY: Operation = Operation::write("retry_delivery", "bring a delivery back");
const FORGET: Operation = Operation::write("forget_delivery", "remove a delivery");
const SWEEP: Operation = Operation::write("sweep_cancelled", "cancel deliveries nobody wants");

/// What an end adds to the revival of a delivery.
const BY_HAND: i32 = 1;
const NOT_BY_HAND: i32 = 0;

/// How often lanes are looked at before a head that slips away each time counts as under way.
const LOOKS_MAX: usize = 8;

/// A delivery wherever it is.
enum Found {
    Live { delivery: Delivery, gone: bool },
    Done { delivery: Delivery, blocks: bool, gone: bool },
}

impl Found {
    fn delivery(&self) -> &Delivery {
        match self {
            Self::Live { delivery, .. } | Self::Done { delivery, .. } => delivery,
        }
    }
}

/// Finds a delivery and holds its row. Who waits for a row that somebody removes and writes anew, as
/// claims and records do, finds neither: the old row is gone and the new one is younger than the look.
/// So before a delivery is said not to exist, one look that waits for nobody has to agree; each other
/// turn means that somebody else's change was committed.
async fn find(client: &Object, tenant: TenantId, id: DeliveryId) -> Outcome<Found> {
    let (tenant, id) = (Uid::from(tenant), Uid::from(id));
    let ids = vec![id];
    loop {
        if let Some(row) = query(client, sql::LIVE_FIND, &[&id, &tenant]).await?.first() {
            let gone = row.try_get("gone")?;
            return Ok(Found::Live { delivery: codec::delivery(row)?, gone });
        }
        if let Some(row) = query(client, sql::DONE_FIND, &[&tenant, &ids]).await?.first() {
            return Ok(Found::Done {
                delivery: codec::delivery(row)?,
                blocks: row.try_get("blocks")?,
                gone: row.try_get("gone")?,
            });
        }
        let rows = query(client, sql::DELIVERY_EXISTS, &[&id, &tenant]).await?;
        let exists = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
        if !exists {
            return Err(Refusal::NotFound.into());
        }
    }
}

/// Takes the lock of a delivery's lane. The rows that were read for it are let go again first,
/// since locks come before rows everywhere else.
async fn enter_lane(client: &Object, tenant: TenantId, id: DeliveryId) -> Outcome<Found> {
    let first = find(client, tenant, id).await?;
    let Some(lane) = first.delivery().lane.as_ref() else { return Ok(first) };
    let slot = lock::lane_slot(first.delivery().subscription, lane);
    client.batch_execute("rollback; begin").await?;
    lock::share(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
    lock::hold(client, lock::LANES, &[i32::from(slot)]).await?;
    find(client, tenant, id).await
}

pub(crate) async fn cancel(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
    at: Timestamp,
) -> Result<Moved> {
    session
        .run(CANCEL, move |client| {
            Box::pin(async move {
                begin(client).await?;
                lock::share(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
                let found = enter_lane(client, tenant, id).await?;
                let moved = cancel_found(client, found, at).await?;
                commit(client).await?;
                Ok(moved)
            })
        })
        .await
}

async fn cancel_found(client: &Object, found: Found, at: Timestamp) -> Outcome<Moved> {
    let free_at = found.delivery().leased_until(at).unwrap_or(at);
    let waited = !found.delivery().state.is_terminal();
    let state = DeliveryState::Cancelled(CancelReason::Operator);
    let mut delivery = match found {
        Found::Live { delivery, gone: false } => {
            let ids = vec![Uid::from(delivery.id)];
            let params: [Param<'_>; 4] = [&ids, &state_code(state), &at.as_millis(), &BY_HAND];
            execute(client, sql::LIVE_END, &params).await?;
            delivery
        }
        Found::Done { delivery, blocks: true, .. } => {
            let (tenant, id) = (Uid::from(delivery.tenant), Uid::from(delivery.id));
            let params: [Param<'_>; 4] = [&tenant, &id, &state_code(state), &at.as_millis()];
            execute(client, sql::DONE_CANCEL, &params).await?;
            delivery
        }
        Found::Live { gone: true, .. } | Found::Done { .. } => return Err(Refusal::Ended.into()),
    };
    delivery.state = state;
    delivery.ended_at = Some(at);
    delivery.due_at = Timestamp::MAX;
    delivery.revival += 1;
    let ready = promote(client, &delivery, free_at).await?;
    let recalls: Vec<Recall> = waited.then(|| recall_of(&delivery)).into_iter().collect();
    let recall = recall(client, &recalls, at).await?;
    Ok(Moved { delivery, ready, recall })
}

/// Makes the first parked delivery of a lane its head, if the lane is free.
async fn promote(client: &Object, ended: &Delivery, at: Timestamp) -> Outcome<Option<Work>> {
    let Some(lane) = &ended.lane else { return Ok(None) };
    let subscription = Uid::from(ended.subscription);
    let params: [Param<'_>; 3] = [&subscription, &lane.as_str(), &due(at)];
    match query(client, sql::PROMOTE, &params).await?.first() {
        Some(row) => work_of(client, &codec::delivery(row)?).await,
        None => Ok(None),
    }
}

pub(crate) async fn retry(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
    at: Timestamp,
) -> Result<Moved> {
    session
        .run(RETRY, move |client| {
            Box::pin(async move {
                begin(client).await?;
                // So that the subscription cannot be deleted meanwhile.
                lock::share(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
                let found = enter_lane(client, tenant, id).await?;
                let moved = retry_found(client, found, at).await?;
                commit(client).await?;
                Ok(moved)
            })
        })
        .await
}

async fn retry_found(client: &Object, found: Found, at: Timestamp) -> Outcome<Moved> {
    let mut delivery = match found {
        Found::Live { gone: true, .. } | Found::Done { gone: true, .. } => {
            return Err(Refusal::NotFound.into());
        }
        Found::Live { delivery, .. } => {
            if delivery.leased_until(at).is_some() {
                return Err(Refusal::NotEnded.into());
            }
            execute(client, sql::LIVE_HASTEN, &[&Uid::from(delivery.id), &due(at)]).await?;
            delivery
        }
        Found::Done { delivery, .. } => delivery,
    };
    delivery.revival += 1;
    let revived = if delivery.state.is_terminal() {
        revive(client, std::slice::from_ref(&delivery), at).await?
    } else {
        Revived {
            parked: vec![delivery.is_parked()],
            promoted: Vec::new(),
            recalls: vec![recall_of(&delivery)],
        }
    };
    let parked = revived.parked.first().copied().unwrap_or(false);
    delivery.state = DeliveryState::Pending;
    delivery.due_at = if parked { Timestamp::MAX } else { Timestamp::from_millis(due(at)) };
    delivery.budget_base = delivery.attempts;
    delivery.budget_began = Timestamp::from_millis(due(at));
    delivery.ended_at = None;
    let ready = match parked {
        true => revived.promoted.into_iter().next(),
        false => work_of(client, &delivery).await?,
    };
    let recall = recall(client, &revived.recalls, at).await?;
    Ok(Moved { delivery, ready, recall })
}

pub(crate) async fn forget(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
    at: Timestamp,
) -> Result<Moved> {
    session
        .run(FORGET, move |client| {
            Box::pin(async move {
                begin(client).await?;
                lock::share(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
                let found = enter_lane(client, tenant, id).await?;
                let moved = forget_found(client, found, at).await?;
                commit(client).await?;
                Ok(moved)
            })
        })
        .await
}

async fn forget_found(client: &Object, found: Found, at: Timestamp) -> Outcome<Moved> {
    let free_at = found.delivery().leased_until(at).unwrap_or(at);
    let (mut delivery, gone) = match found {
        Found::Live { delivery, gone } | Found::Done { delivery, gone, .. } => (delivery, gone),
    };
    let (tenant, id) = (Uid::from(delivery.tenant), Uid::from(delivery.id));
    execute(client, sql::FORGET, &[&tenant, &id, &Uid::from(delivery.event)]).await?;
    let mut recalls = Vec::new();
    if !delivery.state.is_terminal() {
        delivery.revival += 1;
        recalls.push(recall_of(&delivery));
        let left = if gone { CancelReason::Unsubscribed } else { CancelReason::Operator };
        delivery.state = DeliveryState::Cancelled(left);
        delivery.ended_at = Some(at);
        delivery.due_at = Timestamp::MAX;
    }
    let ready = if gone { None } else { promote(client, &delivery, free_at).await? };
    let recall = recall(client, &recalls, at).await?;
    Ok(Moved { delivery, ready, recall })
}

/// What became of those that were brought back.
#[derive(Default)]
pub(crate) struct Revived {
    /// Which of them are parked, in the order given.
    parked: Vec<bool>,
    /// Others that go on because of it: they come before those that came back into their lanes.
    promoted: Vec<Work>,
    /// Who has to wait now.
    pub(crate) recalls: Vec<Recall>,
}

/// Brings ended deliveries of one tenant back, each to its place. The caller holds the locks of their
/// lanes and the rows themselves.
///
/// The lock of a lane keeps its head from ending, not from being leased or put off: both write its row
/// anew. So a head may slip away between the look and the change, and then the lanes are looked at again.
pub(crate) async fn revive(client: &Object, ended: &[Delivery], at: Timestamp) -> Outcome<Revived> {
    let Some(first) = ended.first() else { return Ok(Revived::default()) };
    debug_assert!(ended.iter().all(|d| d.tenant == first.tenant && d.state.is_terminal()));
    let mut recalls = Vec::new();
    let mut looks = 1;
    let places = loop {
        let places = find_places(client, ended, at, looks < LOOKS_MAX).await?;
        if places.displaced.is_empty() {
            break places;
        }
        let params: [Param<'_>; 2] = [&places.displaced, &at.as_millis()];
        let rows = query(client, sql::LIVE_DISPLACE, &params).await?;
        for row in &rows {
            let reader = Reader::new(row, "delivery_live", "id");
            recalls.push(Recall {
                subscription: reader.id("subscription")?,
                delivery: reader.id("id")?,
                revival: reader.small("revival")?,
            });
        }
        if rows.len() == places.displaced.len() {
            break places;
        }
        looks += 1;
    };
    let ids: Vec<Uid> = ended.iter().map(|d| d.id.into()).collect();
    let shards: Vec<i16> = ended
        .iter()
        .map(|d| i16::try_from(Shard::of(d.subscription).number()).unwrap_or(i16::MAX))
        .collect();
    let slots: Vec<Option<i16>> = ended.iter().map(slot_of).collect();
    let tenant = Uid::from(first.tenant);
    let params: [Param<'_>; 6] = [&tenant, &ids, &shards, &slots, &places.parked, &due(at)];
    execute(client, sql::DONE_REVIVE, &params).await?;
    let mut promoted = Vec::new();
    for delivery in places.freed.iter().filter_map(|place| ended.get(*place)) {
        promoted.extend(promote(client, delivery, at).await?);
    }
    Ok(Revived { parked: places.parked, promoted, recalls })
}

/// What nodes must hear of a delivery that has just changed.
fn recall_of(delivery: &Delivery) -> Recall {
    Recall { subscription: delivery.subscription, delivery: delivery.id, revival: delivery.revival }
}

/// Writes down whose copies are out of date, as a version of the catalog of its own. Comes last: from
/// here to the commit no other change gets a version.
pub(crate) async fn recall(
    client: &Object,
    recalls: &[Recall],
    at: Timestamp,
) -> Outcome<Option<CatalogVersion>> {
    if recalls.is_empty() {
        return Ok(None);
    }
    let version = catalog::next_version(client).await?;
    let subscriptions: Vec<Uid> = recalls.iter().map(|r| r.subscription.into()).collect();
    let deliveries: Vec<Uid> = recalls.iter().map(|r| r.delivery.into()).collect();
    let revivals: Vec<i32> =
        recalls.iter().map(|r| i32::try_from(r.revival).unwrap_or(i32::MAX)).collect();
    let params: [Param<'_>; 5] =
        [&version, &subscriptions, &deliveries, &revivals, &at.as_millis()];
    execute(client, sql::RECALL_NEW, &params).await?;
    Ok(Some(CatalogVersion(version.unsigned_abs())))
}

/// The lock slot of a delivery's lane.
pub(crate) fn slot_of(delivery: &Delivery) -> Option<i16> {
    delivery.lane.as_ref().map(|lane| lock::lane_slot(delivery.subscription, lane))
}

/// A lane as it stands while deliveries are brought back into it one by one.
struct LaneState {
    /// Who is at its head in the store, and whether it may be made to wait.
    head: Option<(Uid, u64, bool)>,
    blocker: Option<DeliveryId>,
    /// The first that is parked there.
    parked: Option<u64>,
    /// The first of those that come back, by its place in the list.
    first: Option<(u64, usize)>,
}

/// Where those belong that come back.
struct Places {
    /// Which of them are parked.
    parked: Vec<bool>,
    /// Heads that have to wait.
    displaced: Vec<Uid>,
    /// One of those that come back into each lane that is free for somebody who is parked there.
    freed: Vec<usize>,
}

/// Finds the places of those that come back. Unless `displacing`, every head is as good as under way.
async fn find_places(
    client: &Object,
    ended: &[Delivery],
    at: Timestamp,
    displacing: bool,
) -> Outcome<Places> {
    type Key<'d> = (posthorn_domain::SubscriptionId, &'d Lane);
    let mut lanes: Vec<Key<'_>> =
        ended.iter().filter_map(|d| Some((d.subscription, d.lane.as_ref()?))).collect();
    lanes.sort();
    lanes.dedup();
    let mut places = Places {
        parked: ended.iter().map(|delivery| delivery.lane.is_some()).collect(),
        displaced: Vec::new(),
        freed: Vec::new(),
    };
    if lanes.is_empty() {
        return Ok(places);
    }
    let subscriptions: Vec<Uid> = lanes.iter().map(|(s, _)| Uid::from(*s)).collect();
    let names: Vec<&str> = lanes.iter().map(|(_, lane)| lane.as_str()).collect();
    let mut states = std::collections::BTreeMap::new();
    for row in &query(client, sql::LANES_TAKEN, &[&subscriptions, &names]).await? {
        let reader = Reader::new(row, "delivery_live", "head");
        let item: usize = reader.small("item")?;
        let Some(lane) = item.checked_sub(1).and_then(|i| lanes.get(i)) else { continue };
        let head = match reader.get::<Option<Uid>>("head")? {
            None => None,
            Some(id) => {
                let leased = reader.get::<i16>("state")? == state_code(DeliveryState::InFlight)
                    && reader.time("due_at")? > at;
                Some((id, reader.number("seq")?, displacing && !leased))
            }
        };
        let blocker = row.try_get::<_, Option<Uid>>("blocker")?.map(DeliveryId::from);
        let parked = match row.try_get::<_, Option<i64>>("parked")? {
            None => None,
            Some(_) => Some(reader.number("parked")?),
        };
        states.insert(*lane, LaneState { head, blocker, parked, first: None });
    }
    for (place, delivery) in ended.iter().enumerate() {
        let Some(lane) = &delivery.lane else { continue };
        let Some(state) = states.get_mut(&(delivery.subscription, lane)) else { continue };
        if state.blocker == Some(delivery.id) {
            state.blocker = None;
        }
        if state.first.is_none_or(|(seq, _)| delivery.seq < seq) {
            state.first = Some((delivery.seq, place));
        }
    }
    for LaneState { head, blocker, parked, first } in states.into_values() {
        let Some((seq, place)) = first.filter(|_| blocker.is_none()) else { continue };
        match head {
            None => {}
            Some((id, other, true)) if seq < other => places.displaced.push(id),
            Some(_) => continue,
        }
        // The lane is free for the first of all that wait in it.
        match parked.is_some_and(|parked| parked < seq) {
            true => places.freed.push(place),
            false => places.parked[place] = false,
        }
    }
    Ok(places)
}

pub(crate) async fn sweep(session: &Session, bite: usize, at: Timestamp) -> Result<Swept> {
    session
        .run(SWEEP, move |client| {
            Box::pin(async move {
                begin(client).await?;
                let rows = query(client, sql::SWEEP_FIND, &[&limit(bite)]).await?;
                let ids: Vec<Uid> =
                    rows.iter().map(|row: &Row| row.try_get(0)).collect::<Result<_, _>>()?;
                let state = DeliveryState::Cancelled(CancelReason::Unsubscribed);
                let mut cancelled = 0;
                if !ids.is_empty() {
                    let params: [Param<'_>; 4] =
                        [&ids, &state_code(state), &at.as_millis(), &NOT_BY_HAND];
                    cancelled = execute(client, sql::LIVE_END, &params).await?;
                }
                let more = ids.len() == bite;
                if !more {
                    execute(client, sql::SWEEP_FORGET, &[]).await?;
                }
                commit(client).await?;
                Ok(Swept { cancelled: usize::try_from(cancelled).unwrap_or(usize::MAX), more })
            })
        })
        .await
}

const _: () = assert!(PARKED == i64::MAX, "the statements spell it out");
