//! Events of the past, once more or for the first time, many at once.
//!
//! # Theory of operation
//! A look without locks tells what each event has for the subscriptions that are meant, and so which lanes are
//! concerned. Then what counts is held, in the order of `lock`, and decided by what is there now:
//! * an ended delivery is held before it is tried again; one that somebody else moved meanwhile is on its way, and
//!   one whose event was expunged meanwhile stays as it is;
//! * an event is held before a delivery of it is made, and then looked at once more. Only who holds an event
//!   adds to its deliveries, so none is made twice; and an event that is held, or lists what has not ended, is
//!   not removed.
//!
//! # What it must not know
//! Which events a job is about, and who wants them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::delivery::Stored;
use posthorn_domain::{
    Budget, DeliveryId, DeliveryState, EventId, Lane, Replayed as Deed, Shard, SubscriptionId,
    TenantId, Timestamp,
};
use posthorn_store::{EventTally, Recall, Redelivery, Result};

use crate::codec::{PARKED, Reader, Uid, due, lane_of, state_of};
use crate::expunge::marked;
use crate::failure::Outcome;
use crate::intake::{Scheduled, round_up};
use crate::moves::{revive, stored};
use crate::session::{Operation, Param, Session, execute, query};
use crate::{lock, sql};

const TALLIES: Operation =
    Operation::read("event_tallies", "count what became of deliveries of events");
const FAN_OUTS: Operation = Operation::read("fan_outs", "count deliveries of events");
/// What is written down of when the last delivery was made is rounded up to this, so that it seldom changes; in
/// milliseconds.
const LAST_STEP: i64 = 3_600_000;

const STATES: Operation = Operation::read("delivery_states", "look for deliveries of events");

/// What was done.
#[derive(Default)]
pub(crate) struct Replayed {
    /// Deliveries that were made or tried again.
    pub(crate) done: usize,
    /// Whose they are, sorted, without repetition.
    pub(crate) subscriptions: Vec<SubscriptionId>,
    /// Who has to wait now.
    pub(crate) recalls: Vec<Recall>,
}

/// Does what of `deeds` can be done, inside a transaction of the caller that has no lock yet but that of its job.
pub(crate) async fn replay(
    client: &Object,
    tenant: TenantId,
    deeds: &[Redelivery],
    budget: Budget,
    at: Timestamp,
) -> Outcome<Replayed> {
    if deeds.is_empty() {
        return Ok(Replayed::default());
    }
    // So that no subscription is deleted between here and the commit.
    lock::share(client, lock::TENANTS, &[lock::tenant_slot(tenant)]).await?;
    let there = subscriptions_of(client, tenant, deeds).await?;
    let deeds: Vec<&Redelivery> =
        deeds.iter().filter(|deed| there.contains(&deed.subscription)).collect();
    let seen = look(client, tenant, deeds.iter().map(|deed| pair(deed))).await?;
    let plan = Plan::of(&deeds, &seen);
    lock::hold(client, lock::LANES, &lock::sorted(plan.slots())).await?;

    let ended = still_ended(client, tenant, &plan, at).await?;
    // Before the events are held: it may have to wait for deliveries.
    let revived = revive(client, ended, budget, at).await?;
    let mut whose: Vec<SubscriptionId> = revived.back.iter().map(|d| d.subscription).collect();
    let made = still_missing(client, tenant, &plan).await?;
    make(client, tenant, &made, budget, at).await?;
    whose.extend(made.iter().map(|(deed, _)| deed.subscription));
    let done = whose.len();
    whose.sort_unstable();
    whose.dedup();
    Ok(Replayed { done, subscriptions: whose, recalls: revived.recalls })
}

/// Those that are not deleted.
async fn subscriptions_of(
    client: &Object,
    tenant: TenantId,
    deeds: &[Redelivery],
) -> Outcome<HashSet<SubscriptionId>> {
    let ids: BTreeSet<Uid> = deeds.iter().map(|deed| deed.subscription.into()).collect();
    let ids: Vec<Uid> = ids.into_iter().collect();
    let mut there = HashSet::new();
    for row in &query(client, sql::SUBSCRIPTIONS_THERE, &[&Uid::from(tenant), &ids]).await? {
        there.insert(SubscriptionId::from(row.try_get::<_, Uid>(0)?));
    }
    Ok(there)
}

/// The delivery of an event to a subscription.
struct Known {
    id: DeliveryId,
    state: DeliveryState,
    lane: Option<Lane>,
}

/// The times of an event.
#[derive(Clone, Copy)]
struct Times {
    accepted_at: Timestamp,
    /// When it is to be delivered, where it said so.
    deliver_at: Option<Timestamp>,
}

/// What was found of some events.
#[derive(Default)]
struct Seen {
    /// Those that are there and have a payload, and their times.
    events: HashMap<EventId, Times>,
    deliveries: HashMap<(EventId, SubscriptionId), Known>,
}

/// Which event, for whom.
fn pair(deed: &Redelivery) -> (EventId, SubscriptionId) {
    (deed.event, deed.subscription)
}

async fn look(
    client: &Object,
    tenant: TenantId,
    pairs: impl Iterator<Item = (EventId, SubscriptionId)>,
) -> Outcome<Seen> {
    let (events, whose): (BTreeSet<Uid>, BTreeSet<Uid>) =
        pairs.map(|(event, whose)| (Uid::from(event), Uid::from(whose))).unzip();
    let mut seen = Seen::default();
    if events.is_empty() {
        return Ok(seen);
    }
    let (events, whose): (Vec<Uid>, Vec<Uid>) =
        (events.into_iter().collect(), whose.into_iter().collect());
    let params: [Param<'_>; 3] = [&Uid::from(tenant), &events, &whose];
    for row in &query(client, sql::REPLAY_LOOK, &params).await? {
        let reader = Reader::new(row, "delivery", "id");
        let event: EventId = reader.id("event")?;
        let Some(id) = reader.get::<Option<Uid>>("id")? else {
            let deliver_at = reader.time_maybe("deliver_at")?;
            let times = Times { accepted_at: reader.time("accepted_at")?, deliver_at };
            if reader.time_maybe("expunged_at")?.is_none() {
                seen.events.insert(event, times);
            }
            continue;
        };
        let code: i16 = reader.get("state")?;
        let state = state_of(code)
            .ok_or_else(|| reader.corrupt("state", format!("{code} is not a state")))?;
        let known = Known { id: id.into(), state, lane: lane_of(&reader, "lane")? };
        seen.deliveries.insert((event, reader.id("subscription")?), known);
    }
    Ok(seen)
}

/// The states of the deliveries of events to subscriptions, where there are any.
pub(crate) async fn states(
    session: &Session,
    tenant: TenantId,
    pairs: Vec<(EventId, SubscriptionId)>,
) -> Result<Vec<Option<DeliveryState>>> {
    let pairs: Arc<[(EventId, SubscriptionId)]> = pairs.into();
    session
        .run(STATES, move |client| {
            let pairs = Arc::clone(&pairs);
            Box::pin(async move {
                let seen = look(client, tenant, pairs.iter().copied()).await?;
                let state = |pair| seen.deliveries.get(pair).map(|known| known.state);
                Ok(pairs.iter().map(state).collect())
            })
        })
        .await
}

/// How many deliveries events list.
pub(crate) async fn fan_outs(
    session: &Session,
    tenant: TenantId,
    events: Vec<EventId>,
) -> Result<Vec<usize>> {
    let events: Arc<[EventId]> = events.into();
    session
        .run(FAN_OUTS, move |client| {
            let events = Arc::clone(&events);
            Box::pin(async move {
                let ids: Vec<Uid> = events.iter().map(|id| Uid::from(*id)).collect();
                let mut counts: HashMap<Uid, usize> = HashMap::with_capacity(ids.len());
                for row in &query(client, sql::FAN_OUTS, &[&Uid::from(tenant), &ids]).await? {
                    let count: i32 = row.try_get("deliveries")?;
                    counts.insert(row.try_get("id")?, usize::try_from(count).unwrap_or(0));
                }
                Ok(ids.iter().map(|id| counts.get(id).copied().unwrap_or(0)).collect())
            })
        })
        .await
}

/// What became of the deliveries that events list.
pub(crate) async fn tallies(
    session: &Session,
    tenant: TenantId,
    events: Vec<EventId>,
    limit: usize,
) -> Result<Vec<EventTally>> {
    let events: Arc<[EventId]> = events.into();
    session
        .run(TALLIES, move |client| {
            let events = Arc::clone(&events);
            Box::pin(async move {
                let ids: Vec<Uid> = events.iter().map(|id| Uid::from(*id)).collect();
                let known: BTreeSet<EventId> = events.iter().copied().collect();
                let known: Vec<Uid> = known.into_iter().map(Uid::from).collect();
                let limit = i32::try_from(limit).unwrap_or(i32::MAX);
                let params: [Param<'_>; 3] = [&Uid::from(tenant), &known, &limit];
                let mut tallies: HashMap<Uid, EventTally> = HashMap::with_capacity(ids.len());
                for row in &query(client, sql::EVENT_TALLIES, &params).await? {
                    let reader = Reader::new(row, "event", "event");
                    let code: i16 = reader.get("state")?;
                    let state =
                        state_of(code).ok_or_else(|| reader.corrupt("state", "not a state"))?;
                    let tally = tallies.entry(row.try_get("event")?).or_default();
                    tally.add(state, reader.number("deliveries")?);
                    tally.more = row.try_get::<_, i32>("listed")? > limit;
                }
                Ok(ids.iter().map(|id| tallies.get(id).copied().unwrap_or_default()).collect())
            })
        })
        .await
}

/// What is to be done, as far as one can tell without locks. Nothing of an event for a subscription occurs twice.
#[derive(Default)]
struct Plan<'d> {
    /// Ended deliveries, in the order in which they must be held.
    again: BTreeMap<DeliveryId, (&'d Redelivery, Option<Lane>)>,
    /// In the order in which they were asked for.
    new: Vec<&'d Redelivery>,
}

impl<'d> Plan<'d> {
    fn of(deeds: &[&'d Redelivery], seen: &Seen) -> Self {
        let mut plan = Self::default();
        let mut planned = HashSet::new();
        for deed in deeds {
            let name = (deed.event, deed.subscription);
            let known = seen.deliveries.get(&name);
            let wanted = deed.status.decide(known.map(|known| known.state));
            let there = seen.events.contains_key(&deed.event);
            if wanted == Deed::Left || !there || !planned.insert(name) {
                continue;
            }
            match known {
                Some(Known { id, lane, .. }) => {
                    plan.again.insert(*id, (deed, lane.clone()));
                }
                None => plan.new.push(deed),
            }
        }
        plan
    }

    /// The slots of all lanes that somebody comes into.
    fn slots(&self) -> impl Iterator<Item = i32> {
        let again = self.again.values().map(|(deed, lane)| (deed.subscription, lane.as_ref()));
        let new = self.new.iter().map(|deed| (deed.subscription, deed.lane.as_ref()));
        let lanes = again.chain(new).filter_map(|(whose, lane)| Some((whose, lane?)));
        lanes.map(|(whose, lane)| i32::from(lock::lane_slot(whose, lane)))
    }
}

/// Holds those that are to be tried again, and leaves out what nobody wants any more as it is now.
async fn still_ended(
    client: &Object,
    tenant: TenantId,
    plan: &Plan<'_>,
    at: Timestamp,
) -> Outcome<Vec<Stored>> {
    if plan.again.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uid> = plan.again.keys().map(|id| Uid::from(*id)).collect();
    let mut ended = Vec::with_capacity(ids.len());
    for row in &query(client, sql::DONE_FIND, &[&Uid::from(tenant), &ids]).await? {
        let stored = stored(row)?;
        let deed = plan.again.get(&stored.delivery.id).map(|(deed, _)| deed);
        let decide = |deed: &&Redelivery| deed.status.decide(Some(stored.delivery.state));
        let possible = stored.left.is_none() && stored.waits_until(at).is_none();
        if deed.map(decide) == Some(Deed::Retried) && possible {
            ended.push(stored);
        }
    }
    let ended = marked(client, tenant, ended).await?;
    Ok(ended.into_iter().filter(|stored| !stored.expunged).collect())
}

/// Holds the events of which deliveries are to be made, and leaves out what is gone or was made by somebody else.
/// With the times of each event.
async fn still_missing<'d>(
    client: &Object,
    tenant: TenantId,
    plan: &Plan<'d>,
) -> Outcome<Vec<(&'d Redelivery, Times)>> {
    if plan.new.is_empty() {
        return Ok(Vec::new());
    }
    let events: BTreeSet<Uid> = plan.new.iter().map(|deed| deed.event.into()).collect();
    let events: Vec<Uid> = events.into_iter().collect();
    query(client, sql::REPLAY_HOLD, &[&Uid::from(tenant), &events]).await?;
    let seen = look(client, tenant, plan.new.iter().map(|deed| pair(deed))).await?;
    let missing = plan.new.iter().filter_map(|deed| {
        let name = (deed.event, deed.subscription);
        let times = seen.events.get(&deed.event)?;
        (!seen.deliveries.contains_key(&name)).then_some((*deed, *times))
    });
    Ok(missing.collect())
}

/// Makes deliveries that come last in their lanes.
async fn make(
    client: &Object,
    tenant: TenantId,
    new: &[(&Redelivery, Times)],
    budget: Budget,
    at: Timestamp,
) -> Outcome<()> {
    if new.is_empty() {
        return Ok(());
    }
    let shard = |deed: &Redelivery| Shard::of(deed.subscription).number();
    let (mut slots, mut lanes) = (Vec::new(), Vec::new());
    let (mut due_at, mut began) = (Vec::new(), Vec::new());
    let mut scheduled = Scheduled::default();
    for (deed, times) in new {
        let later = times.deliver_at.filter(|later| *later > at);
        let enters = deed.lane.as_ref().zip(later);
        if let Some((lane, later)) = enters {
            scheduled.push(deed.id, deed.subscription, lane, later);
        }
        let lane = deed.lane.as_ref().filter(|_| enters.is_none());
        slots.push(lane.map(|lane| lock::lane_slot(deed.subscription, lane)));
        lanes.push(lane.map(Lane::as_str));
        let begins = due(later.unwrap_or(at));
        due_at.push(if enters.is_some() { PARKED } else { begins });
        began.push(begins);
    }
    let ids: Vec<Uid> = new.iter().map(|(deed, _)| deed.id.into()).collect();
    let events: Vec<Uid> = new.iter().map(|(deed, _)| deed.event.into()).collect();
    let whose: Vec<Uid> = new.iter().map(|(deed, _)| deed.subscription.into()).collect();
    let shards: Vec<i16> =
        new.iter().map(|(deed, _)| i16::try_from(shard(deed)).unwrap_or(i16::MAX)).collect();
    let created: Vec<i64> = new.iter().map(|(_, times)| times.accepted_at.as_millis()).collect();
    let tenant = Uid::from(tenant);
    let once = budget == Budget::Once;
    let params: [Param<'_>; 11] =
        [&tenant, &ids, &events, &whose, &shards, &slots, &lanes, &created, &due_at, &began, &once];
    execute(client, sql::REPLAY_MAKE, &params).await?;
    if !scheduled.is_empty() {
        execute(client, sql::SCHEDULE, &scheduled.params()).await?;
    }
    // In the same transaction, so that who sees the deliveries sees this as well.
    let made = |(deed, _): &(&Redelivery, Times)| deed.id.made_at().as_millis();
    let late = |new: &(&Redelivery, Times)| made(new).saturating_sub(new.1.accepted_at.as_millis());
    let later = round_up(new.iter().map(late).max().unwrap_or(0));
    let earlier = round_up(new.iter().map(late).min().unwrap_or(0).saturating_neg());
    let last = new.iter().map(made).max().unwrap_or(0);
    let last = last.saturating_add(LAST_STEP) / LAST_STEP * LAST_STEP;
    execute(client, sql::REPLAYED, &[&tenant, &later, &last]).await?;
    if earlier > 0 {
        execute(client, sql::SKEW_GROW, &[&earlier]).await?;
    }
    Ok(())
}
