//! What operators do by hand, and what a deleted subscription leaves to be done.
//!
//! None of this is frequent, so it is written for clarity: a few statements one after the other. What they
//! write is decided by [`delivery::by_hand`]; where one changes many rows, it says the same of all of them.
//! The lane's lock is taken before anything about the lane is read; since that needs the lane's
//! name, a delivery is looked up twice, and only the second look counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::delivery::{self, Head, Others, Stored, Wish};
use posthorn_domain::{
    Budget, CancelReason, CatalogVersion, Delivery, DeliveryId, DeliveryState, Lane, Shard,
    SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Along, Error, Moved, Moves, NewEvent, Recall, Refusal, Result, Swept, Work};
use tokio_postgres::Row;

use crate::codec::{self, PARKED, Reader, Uid, due, limit, state_code};
use crate::expunge::marked;
use crate::failure::{Failure, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::work::work_of;
use crate::{audit, catalog, lock, sql, told};

const CANCEL: Operation = Operation::write("cancel_delivery", "cancel a delivery");
const RETRY: Operation = Operation::write("retry_delivery", "retry a delivery");
const FORGET: Operation = Operation::write("forget_delivery", "remove a delivery");
const SWEEP: Operation = Operation::write(
    "sweep_cancelled",
    "cancel deliveries of deleted \
                                                              subscriptions",
);

/// What an end adds to the revival of a delivery.
const BY_HAND: i32 = 1;
const NOT_BY_HAND: i32 = 0;

/// How often lanes are looked at before a head that slips away each time counts as under way.
const LOOKS_MAX: usize = 8;

/// A delivery wherever it is.
struct Found {
    stored: Stored,
    /// Whether it is among those that have not ended.
    live: bool,
}

/// A delivery of `delivery_live` or `delivery_done`, and what goes with it.
pub(crate) fn stored(row: &Row) -> Outcome<Stored> {
    let left = row.try_get::<_, Option<i64>>("left")?.map(Timestamp::from_millis);
    let deliver_at = row.try_get::<_, Option<i64>>("deliver_at")?.map(Timestamp::from_millis);
    let enters = codec::lane_of(&Reader::new(row, "scheduled", "id"), "enters")?;
    let (delivery, blocks) = (codec::delivery(row)?, row.try_get("blocks")?);
    // See `expunge::marked`.
    let expunged = false;
    Ok(Stored { delivery, blocks, left, deliver_at, enters, expunged })
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
            return Ok(Found { stored: stored(row)?, live: true });
        }
        if let Some(row) = query(client, sql::DONE_FIND, &[&tenant, &ids]).await?.first() {
            return Ok(Found { stored: stored(row)?, live: false });
        }
        let rows = query(client, sql::DELIVERY_EXISTS, &[&id, &tenant]).await?;
        let exists = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
        if !exists {
            return Err(Refusal::NotFound.into());
        }
    }
}

/// Takes the lock of a delivery's lane, and those of what is told. The rows that were read for it are let go again
/// first, since locks come before rows everywhere else.
async fn enter_lane(
    client: &Object,
    tenant: TenantId,
    id: DeliveryId,
    told: &[NewEvent],
) -> Outcome<Found> {
    let first = find(client, tenant, id).await?;
    let own = slot_of(&first.stored.delivery).map(i32::from);
    let lanes = lock::sorted(told::lane_slots(told).into_iter().chain(own));
    if lanes.is_empty() {
        return Ok(first);
    }
    client.batch_execute("rollback; begin").await?;
    share_tenants(client, tenant, told).await?;
    lock::hold(client, lock::LANES, &lanes).await?;
    find(client, tenant, id).await
}

/// So that neither the subscription nor whom anything is told can change meanwhile.
async fn share_tenants(client: &Object, tenant: TenantId, told: &[NewEvent]) -> Outcome<()> {
    let own = [lock::tenant_slot(tenant)];
    let slots = lock::sorted(told::tenant_slots(told).into_iter().chain(own));
    lock::share(client, lock::TENANTS, &slots).await
}

/// Does what somebody wants of a delivery, as far as it is possible.
pub(crate) async fn by_hand(
    session: &Session,
    wish: Wish,
    tenant: TenantId,
    id: DeliveryId,
    at: Timestamp,
    along: Along,
) -> Result<Moved> {
    told::prepare(session, &along.told).await?;
    let along = Arc::new(along);
    let operation = match wish {
        Wish::Cancel => CANCEL,
        Wish::Retry | Wish::RetryOnce => RETRY,
        Wish::Forget => FORGET,
    };
    session
        .run(operation, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                begin(client).await?;
                share_tenants(client, tenant, &along.told).await?;
                let found = enter_lane(client, tenant, id, &along.told).await?;
                let moved = match (wish.budget(), found.live) {
                    (Some(budget), false) => bring_back(client, found.stored, budget, at).await?,
                    _ => move_one(client, wish, found, at).await?,
                };
                audit::write(client, &along).await?;
                commit(client).await?;
                Ok(moved)
            })
        })
        .await
}

/// Everything that concerns one delivery and lets at most one other go on.
async fn move_one(client: &Object, wish: Wish, found: Found, at: Timestamp) -> Outcome<Moved> {
    let (delivery, ready, recalls) = carry_out(client, wish, found, at).await?;
    let recall = recall(client, recalls.as_slice(), at).await?;
    Ok(Moved { delivery, ready, recall })
}

/// What was done to many.
#[derive(Default)]
pub(crate) struct MovedMany {
    pub(crate) done: usize,
    /// Of whom somebody else goes on now.
    pub(crate) due: Vec<SubscriptionId>,
    pub(crate) recalls: Vec<Recall>,
}

/// Cancels, forgets or retries many deliveries of a tenant, as far as each is still meant, inside a transaction of the caller that has
/// no lock yet but that of its job. One after the other, in the order of ids: a bite has few of them.
pub(crate) async fn move_many(
    client: &Object,
    tenant: TenantId,
    moves: &Moves,
    at: Timestamp,
) -> Outcome<MovedMany> {
    share_tenants(client, tenant, &[]).await?;
    let ids: BTreeSet<DeliveryId> = moves.deliveries.iter().copied().collect();
    let uids: Vec<Uid> = ids.iter().map(|id| Uid::from(*id)).collect();
    let mut held = BTreeSet::new();
    for row in &query(client, sql::LANES_OF, &[&Uid::from(tenant), &uids]).await? {
        let reader = Reader::new(row, "delivery", "subscription");
        if let Some(lane) = codec::lane_of(&reader, "lane")? {
            held.insert(i32::from(lock::lane_slot(reader.id("subscription")?, &lane)));
        }
    }
    lock::hold(client, lock::LANES, &lock::sorted(held.iter().copied())).await?;
    let (mut all, mut ended) = (MovedMany::default(), Vec::new());
    let retried = match moves.wish {
        Wish::Retry => Some(Budget::Fresh),
        Wish::RetryOnce => Some(Budget::Once),
        Wish::Cancel | Wish::Forget => None,
    };
    for id in ids {
        let found = match find(client, tenant, id).await {
            Err(Failure::Store(Error::Refused(_))) => continue,
            found => found?,
        };
        if !moves.filter.wants(&found.stored.clone().seen()) {
            continue;
        }
        // One that entered its lane since we looked. Its lock comes late; should we wait in a circle, all of it is repeated.
        if let Some(slot) = slot_of(&found.stored.delivery).map(i32::from)
            && held.insert(slot)
        {
            lock::hold(client, lock::LANES, &[slot]).await?;
        }
        if retried.is_some() && !found.live {
            if found.stored.left.is_none() && found.stored.waits_until(at).is_none() {
                ended.push(found.stored);
            }
            continue;
        }
        match carry_out(client, moves.wish, found, at).await {
            Err(Failure::Store(Error::Refused(_))) => {}
            moved => {
                let (delivery, ready, recalled) = moved?;
                all.done += 1;
                all.due.extend(ready.map(|_| delivery.subscription));
                all.recalls.extend(recalled);
            }
        }
    }
    let ended = marked(client, tenant, ended).await?;
    let ended = ended.into_iter().filter(|stored| !stored.expunged).collect();
    let Revived { back, promoted, recalls } =
        revive(client, ended, retried.unwrap_or_default(), at).await?;
    all.done += back.len();
    let due = back.iter().filter(|delivery| !delivery.is_parked());
    all.due.extend(due.chain(promoted.iter().map(|work| &work.delivery)).map(|d| d.subscription));
    all.recalls.extend(recalls);
    Ok(all)
}

/// The delivery, work that is due because of it, and whose copies are out of date.
async fn carry_out(
    client: &Object,
    wish: Wish,
    found: Found,
    at: Timestamp,
) -> Outcome<(Delivery, Option<Work>, Option<Recall>)> {
    let Found { stored, live } = found;
    let old = &stored.delivery;
    let lanes = lanes_of(client, std::slice::from_ref(&stored), at, true).await?;
    let others = lanes.values().next().map(|lane| lane.besides(old.id)).unwrap_or_default();
    let moved = delivery::by_hand(wish, &stored, &others, at).map_err(Refusal::from)?;
    let delivery = moved.delivery;
    let (tenant, id) = (Uid::from(old.tenant), Uid::from(old.id));
    let state = state_code(delivery.state);
    match (wish, live) {
        (Wish::Cancel, true) => {
            let params: [Param<'_>; 4] = [&vec![id], &state, &at.as_millis(), &BY_HAND];
            execute(client, sql::LIVE_END, &params).await?;
        }
        (Wish::Cancel, false) => {
            let params: [Param<'_>; 4] = [&tenant, &id, &state, &at.as_millis()];
            execute(client, sql::DONE_CANCEL, &params).await?;
        }
        (Wish::Retry | Wish::RetryOnce, _) => {
            let keeps = wish == Wish::RetryOnce;
            execute(client, sql::LIVE_HASTEN, &[&id, &due(at), &keeps]).await?;
        }
        (Wish::Forget, _) => {
            execute(client, sql::FORGET, &[&tenant, &id, &Uid::from(old.event)]).await?;
        }
    }
    let itself = !delivery.state.is_terminal() && !delivery.is_parked();
    let ready = match moved.promotes {
        Some(from) => promote(client, &delivery, from).await?,
        None if itself => work_of(client, &delivery).await?,
        None => None,
    };
    let recall = moved.recalled.then(|| recall_of(&delivery));
    Ok((delivery, ready, recall))
}

/// One that has ended comes back.
async fn bring_back(
    client: &Object,
    ended: Stored,
    budget: Budget,
    at: Timestamp,
) -> Outcome<Moved> {
    let ended = marked(client, ended.delivery.tenant, vec![ended]).await?;
    let Revived { back, promoted, recalls } = revive(client, ended, budget, at).await?;
    let delivery = back.into_iter().next().ok_or(Refusal::NotFound)?;
    let ready = match delivery.is_parked() {
        true => promoted.into_iter().next(),
        false => work_of(client, &delivery).await?,
    };
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

/// What became of those that were brought back.
#[derive(Default)]
pub(crate) struct Revived {
    /// Those themselves, by their places in commit order.
    pub(crate) back: Vec<Delivery>,
    /// Others that go on because of it: they come before those that came back into their lanes.
    promoted: Vec<Work>,
    /// Who has to wait now.
    pub(crate) recalls: Vec<Recall>,
}

/// Brings ended deliveries of one tenant back, each to its place. The caller holds the locks of their
/// lanes and the rows themselves. However many they are, it takes a statement for each step, and one for
/// each lane in which somebody else goes on.
///
/// The lock of a lane keeps its head from ending, not from being leased or put off: both write its row
/// anew. So a head may slip away between the look and the change, and then the lanes are looked at again. The heads
/// that were held are let go before: who waits for one row while it holds others of a later id waits in a circle with
/// claims and records, which hold them in the order of ids.
pub(crate) async fn revive(
    client: &Object,
    mut ended: Vec<Stored>,
    budget: Budget,
    at: Timestamp,
) -> Outcome<Revived> {
    ended.sort_unstable_by_key(|stored| stored.delivery.seq);
    let Some(first) = ended.first() else { return Ok(Revived::default()) };
    let tenant = Uid::from(first.delivery.tenant);
    let mut looks = 1;
    let (places, recalls) = loop {
        let lanes = lanes_of(client, &ended, at, looks < LOOKS_MAX).await?;
        let places = find_places(lanes, &ended, budget, at)?;
        if places.displaced.is_empty() {
            break (places, Vec::new());
        }
        client.batch_execute("savepoint look").await?;
        let recalls = displace(client, &places.displaced, at).await?;
        if recalls.len() == places.displaced.len() {
            break (places, recalls);
        }
        client.batch_execute("rollback to savepoint look").await?;
        looks += 1;
    };
    let Places { back, freed, .. } = places;
    let ids: Vec<Uid> = back.iter().map(|d| d.id.into()).collect();
    let shards: Vec<i16> = back
        .iter()
        .map(|d| i16::try_from(Shard::of(d.subscription).number()).unwrap_or(i16::MAX))
        .collect();
    let slots: Vec<Option<i16>> = back.iter().map(slot_of).collect();
    let parked: Vec<bool> = back.iter().map(Delivery::is_parked).collect();
    let once = budget == Budget::Once;
    let params: [Param<'_>; 7] = [&tenant, &ids, &shards, &slots, &parked, &due(at), &once];
    execute(client, sql::DONE_REVIVE, &params).await?;
    let mut promoted = Vec::new();
    for delivery in freed.iter().filter_map(|place| back.get(*place)) {
        promoted.extend(promote(client, delivery, at).await?);
    }
    Ok(Revived { back, promoted, recalls })
}

/// Has heads of lanes wait; those that slipped away are not among the answers.
async fn displace(client: &Object, heads: &[Uid], at: Timestamp) -> Outcome<Vec<Recall>> {
    let rows = query(client, sql::LIVE_DISPLACE, &[&heads, &at.as_millis()]).await?;
    let recall = |row: &Row| {
        let reader = Reader::new(row, "delivery_live", "id");
        Ok(Recall {
            subscription: reader.id("subscription")?,
            delivery: reader.id("id")?,
            revival: reader.small("revival")?,
        })
    };
    rows.iter().map(recall).collect()
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

/// A lane as it stands.
#[derive(Default)]
struct LaneState {
    head: Option<(DeliveryId, Head)>,
    blocker: Option<DeliveryId>,
    /// The first that is parked there.
    parked: Option<u64>,
}

impl LaneState {
    /// The others, as one of the lane sees them.
    fn besides(&self, id: DeliveryId) -> Others {
        Others {
            blocked: self.blocker.is_some_and(|blocker| blocker != id),
            head: self.head.filter(|(head, _)| *head != id).map(|(_, head)| head),
            parked: self.parked,
        }
    }

    /// After one came back that goes before all that come back later.
    fn take_in(&mut self, back: &Delivery, promotes: bool) {
        self.blocker = self.blocker.filter(|blocker| *blocker != back.id);
        let first = self.parked.filter(|_| promotes).unwrap_or(back.seq);
        if promotes || !back.is_parked() {
            self.head = Some((back.id, Head { seq: first, leased: false }));
        } else {
            self.parked = Some(self.parked.map_or(back.seq, |parked| parked.min(back.seq)));
        }
    }
}

type Lanes = BTreeMap<(SubscriptionId, Lane), LaneState>;

/// How the lanes of deliveries stand. Unless `displacing`, every head is as good as under way.
async fn lanes_of(
    client: &Object,
    members: &[Stored],
    at: Timestamp,
    displacing: bool,
) -> Outcome<Lanes> {
    let name =
        |stored: &Stored| Some((stored.delivery.subscription, stored.delivery.lane.clone()?));
    let lanes: Vec<(SubscriptionId, Lane)> =
        members.iter().filter_map(name).collect::<BTreeSet<_>>().into_iter().collect();
    if lanes.is_empty() {
        return Ok(Lanes::new());
    }
    let subscriptions: Vec<Uid> = lanes.iter().map(|(s, _)| Uid::from(*s)).collect();
    let names: Vec<&str> = lanes.iter().map(|(_, lane)| lane.as_str()).collect();
    let mut states = Lanes::new();
    for row in &query(client, sql::LANES_TAKEN, &[&subscriptions, &names]).await? {
        let reader = Reader::new(row, "delivery_live", "head");
        let item: usize = reader.small("item")?;
        let Some(lane) = item.checked_sub(1).and_then(|i| lanes.get(i)) else { continue };
        let head = match reader.get::<Option<Uid>>("head")? {
            None => None,
            Some(id) => {
                let leased = reader.get::<i16>("state")? == state_code(DeliveryState::InFlight)
                    && reader.time("due_at")? > at;
                let head = Head { seq: reader.number("seq")?, leased: leased || !displacing };
                Some((id.into(), head))
            }
        };
        let blocker = row.try_get::<_, Option<Uid>>("blocker")?.map(DeliveryId::from);
        let parked = row.try_get::<_, Option<i64>>("parked")?.map(i64::unsigned_abs);
        states.insert(lane.clone(), LaneState { head, blocker, parked });
    }
    Ok(states)
}

/// Where those belong that come back.
#[derive(Default)]
struct Places {
    back: Vec<Delivery>,
    /// Heads that have to wait.
    displaced: Vec<Uid>,
    /// One of those that come back into each lane in which somebody who was parked there goes on.
    freed: Vec<usize>,
}

/// Finds the places of those that come back, who are in commit order.
fn find_places(
    mut lanes: Lanes,
    ended: &[Stored],
    budget: Budget,
    at: Timestamp,
) -> Result<Places, Refusal> {
    let mut places = Places::default();
    for (place, stored) in ended.iter().enumerate() {
        let old = &stored.delivery;
        let name = old.lane.clone().map(|lane| (old.subscription, lane));
        let mut lane = name.as_ref().and_then(|name| lanes.get_mut(name));
        let others = lane.as_ref().map(|lane| lane.besides(old.id)).unwrap_or_default();
        let moved = delivery::by_hand(Wish::retry(budget), stored, &others, at)?;
        if let Some(lane) = &mut lane {
            let head = lane.head.filter(|_| moved.displaces);
            places.displaced.extend(head.map(|(id, _)| Uid::from(id)));
            lane.take_in(&moved.delivery, moved.promotes.is_some());
        }
        places.freed.extend(moved.promotes.map(|_| place));
        places.back.push(moved.delivery);
    }
    Ok(places)
}

/// Many at once, so the statement says for all of them what `Delivery::cancelled` says of one; nobody goes
/// on in the lanes of somebody who left.
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
