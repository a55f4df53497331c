//! Accepting events: a whole batch in one round trip.
//!
//! Locks first (tenants shared, lanes alone), then one statement that judges every item and stores
//! the good ones, then a look at the idempotency keys, which tells why the others were not stored.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use deadpool_postgres::Object;
use posthorn_domain::{DeliveryId, EventId, Lane, Shard, SubscriptionId, TenantId, Timestamp};
use posthorn_store::{Accepted, NewEvent, Placed, Result};
use tokio_postgres::Row;

use crate::codec::{PARKED, Reader, Uid, due, json, text};
use crate::failure::{Corrupt, Failure, Outcome};
use crate::log::kinds;
use crate::session::{Operation, Param, Session, execute, pipeline, query, step};
use crate::{lock, metrics, sql};

const ACCEPT: Operation = Operation::write("accept", "store events");
const SKEW: Operation = Operation::write("skew", "store how times and ids differ");

pub(crate) async fn accept(session: &Session, batch: Vec<NewEvent>) -> Result<Vec<Accepted>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    metrics::rows(ACCEPT.name, batch.len());
    note_skew(session, &batch).await?;
    let batch = Arc::new(batch);
    session
        .run(ACCEPT, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let replies = accept_or_repeat(client, &batch).await?;
                if replies.iter().any(|reply| matches!(reply, Accepted::Duplicate { .. })) {
                    // What came with it in the same batch is stored by now.
                    settle(client).await.map_err(Failure::after_a_commit)?;
                }
                Ok(replies)
            })
        })
        .await
}

/// What was there already may be here only: who stored it was perhaps told that nobody knows, because its commit did not
/// get to wait for the standby. Saying now that it is stored is a promise of its own.
async fn settle(client: &Object) -> Outcome<()> {
    let steps = [step(client, sql::SETTLE, &[]).await?];
    pipeline(client, &steps).await.map(drop)
}

/// Before events are stored: how far their times and ids are apart is written down.
pub(crate) async fn note_skew<'b>(
    session: &Session,
    batch: impl IntoIterator<Item = &'b NewEvent>,
) -> Result<()> {
    let skew = skew_of(batch);
    if skew > session.skew.load(Ordering::Relaxed) {
        grow_skew(session, skew).await?;
        session.skew.fetch_max(skew, Ordering::Relaxed);
    }
    Ok(())
}

/// How far the times in ids are from those of their rows at most, or a little more.
fn skew_of<'b>(batch: impl IntoIterator<Item = &'b NewEvent>) -> i64 {
    let apart = |new: &NewEvent| {
        let at = new.event.accepted_at.as_millis();
        let made = new.deliveries.iter().map(|delivery| delivery.id.made_at());
        let made = made.chain([new.event.id.made_at()]);
        made.map(|made| at.saturating_sub(made.as_millis()).saturating_abs()).max().unwrap_or(0)
    };
    round_up(batch.into_iter().map(apart).max().unwrap_or(0))
}

/// So that what is written down of it seldom grows; nothing below zero.
pub(crate) fn round_up(millis: i64) -> i64 {
    match u64::try_from(millis) {
        Err(_) | Ok(0) => 0,
        Ok(most) => most
            .checked_next_power_of_two()
            .map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX)),
    }
}

/// Before anything is stored that needs it: saying too much is harmless.
async fn grow_skew(session: &Session, skew: i64) -> Result<()> {
    session
        .run(SKEW, move |client| {
            Box::pin(async move {
                execute(client, sql::SKEW_GROW, &[&skew]).await?;
                Ok(())
            })
        })
        .await
}

/// A caller that does not know whether its last call worked may repeat it, ids and all. What is
/// stored already under its own id is then a duplicate of itself, and the rest is stored.
async fn accept_or_repeat(client: &Object, batch: &[NewEvent]) -> Outcome<Vec<Accepted>> {
    let items: Vec<&NewEvent> = batch.iter().collect();
    let failure = match accept_batch(client, &items).await {
        Ok(replies) => return Ok(replies),
        Err(failure) if failure.is_repeated_row() => failure,
        Err(failure) => return Err(failure),
    };
    let tenants: Vec<Uid> = items.iter().map(|item| item.event.tenant.into()).collect();
    let ids: Vec<Uid> = items.iter().map(|item| item.event.id.into()).collect();
    let rows = query(client, sql::EVENTS_KNOWN, &[&tenants, &ids]).await?;
    let mut known = HashSet::new();
    for row in &rows {
        known.insert(EventId::from(row.try_get::<_, Uid>(0)?));
    }
    if known.is_empty() {
        return Err(failure);
    }
    let (old, new): (Vec<&NewEvent>, Vec<&NewEvent>) =
        items.iter().partition(|item| known.contains(&item.event.id));
    debug_assert_eq!(old.len() + new.len(), items.len());
    let mut fresh = match new.is_empty() {
        true => Vec::new(),
        false => accept_batch(client, &new).await?,
    }
    .into_iter();
    let reply = |item: &&NewEvent| match known.contains(&item.event.id) {
        true => Some(Accepted::Duplicate { event: item.event.id }),
        false => fresh.next(),
    };
    Ok(items.iter().filter_map(reply).collect())
}

/// The columns of a batch.
#[derive(Default)]
struct Columns<'b> {
    id: Vec<Uid>,
    tenant: Vec<Uid>,
    topic: Vec<&'b str>,
    event_type: Vec<&'b str>,
    kind: Vec<i64>,
    attributes: Vec<Cow<'b, str>>,
    key: Vec<Option<&'b str>>,
    content_type: Vec<Cow<'b, str>>,
    payload: Vec<&'b [u8]>,
    accepted_at: Vec<i64>,
    catalog: Vec<i64>,
    idempotency_key: Vec<Option<&'b str>>,
    fingerprint: Vec<Option<&'b [u8]>>,
    first: Vec<i32>,
    last: Vec<i32>,
    publisher_id: Vec<Option<&'b str>>,
    deliver_at: Vec<Option<i64>>,
    retention: Vec<Option<i64>>,
    trace: Vec<Option<Vec<u8>>>,
    expiring: Expiring,
    scheduled: Scheduled<'b>,
    delivery: DeliveryColumns<'b>,
}

#[derive(Default)]
struct DeliveryColumns<'b> {
    id: Vec<Uid>,
    event: Vec<Uid>,
    subscription: Vec<Uid>,
    tenant: Vec<Uid>,
    shard: Vec<i16>,
    lane_slot: Vec<Option<i16>>,
    lane: Vec<Option<&'b str>>,
    due_at: Vec<i64>,
    created_at: Vec<i64>,
    item: Vec<i32>,
    budget_began: Vec<i64>,
}

/// Events with a retention of their own.
#[derive(Default)]
struct Expiring {
    tenant: Vec<Uid>,
    id: Vec<Uid>,
    at: Vec<i64>,
}

/// Deliveries that enter their lanes later.
#[derive(Default)]
pub(crate) struct Scheduled<'b> {
    id: Vec<Uid>,
    subscription: Vec<Uid>,
    at: Vec<i64>,
    lane_slot: Vec<i16>,
    lane: Vec<&'b str>,
}

impl<'b> Scheduled<'b> {
    pub(crate) fn push(
        &mut self,
        id: DeliveryId,
        subscription: SubscriptionId,
        lane: &'b Lane,
        at: Timestamp,
    ) {
        self.id.push(id.into());
        self.subscription.push(subscription.into());
        self.at.push(at.as_millis());
        self.lane_slot.push(lock::lane_slot(subscription, lane));
        self.lane.push(lane.as_str());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    pub(crate) fn params(&self) -> [Param<'_>; 5] {
        [&self.id, &self.subscription, &self.at, &self.lane_slot, &self.lane]
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl<'b> Columns<'b> {
    fn of(batch: &[&'b NewEvent]) -> Self {
        let mut columns = Self::default();
        for (index, new) in batch.iter().enumerate() {
            columns.push(count(index + 1), new);
        }
        columns
    }

    fn push(&mut self, item: i32, new: &'b NewEvent) {
        let event = &*new.event;
        self.id.push(event.id.into());
        self.tenant.push(event.tenant.into());
        self.topic.push(event.topic.as_str());
        self.event_type.push(event.event_type.as_str());
        self.kind.push(kinds::of(event));
        self.attributes.push(match event.attributes.is_empty() {
            true => Cow::Borrowed("{}"),
            false => Cow::Owned(json(&event.attributes)),
        });
        self.key.push(event.key.as_ref().map(|key| key.as_str()));
        self.content_type.push(text(&event.content_type));
        self.payload.push(&event.payload);
        self.accepted_at.push(event.accepted_at.as_millis());
        self.catalog.push(i64::try_from(new.catalog.0).unwrap_or(i64::MAX));
        self.idempotency_key.push(new.idempotency.as_ref().map(|i| i.key.as_str()));
        self.fingerprint.push(new.idempotency.as_ref().map(|i| &i.fingerprint[..]));
        self.publisher_id.push(event.publisher_id.as_ref().map(|id| id.as_str()));
        self.deliver_at.push(event.deliver_at.map(Timestamp::as_millis));
        self.retention.push(event.retention.map(|r| r.as_millis().try_into().unwrap_or(i64::MAX)));
        self.trace.push(event.trace.map(|trace| trace.to_bytes().to_vec()));
        if let Some(at) = event.expires_at() {
            self.expiring.tenant.push(event.tenant.into());
            self.expiring.id.push(event.id.into());
            self.expiring.at.push(at.as_millis());
        }
        self.first.push(count(self.delivery.id.len() + 1));
        for delivery in &new.deliveries {
            let rows = &mut self.delivery;
            let (mut lane, mut due_at) = (delivery.lane.as_ref(), due(delivery.due_at));
            if let (Some(enters), Some(at)) = (lane, event.deliver_at) {
                self.scheduled.push(delivery.id, delivery.subscription, enters, at);
                (lane, due_at) = (None, PARKED);
            }
            let shard = Shard::of(delivery.subscription).number();
            rows.id.push(delivery.id.into());
            rows.event.push(event.id.into());
            rows.subscription.push(delivery.subscription.into());
            rows.tenant.push(event.tenant.into());
            rows.shard.push(i16::try_from(shard).unwrap_or(i16::MAX));
            rows.lane_slot.push(lane.map(|lane| lock::lane_slot(delivery.subscription, lane)));
            rows.lane.push(lane.map(|lane| lane.as_str()));
            rows.due_at.push(due_at);
            rows.budget_began.push(event.begins_at().as_millis());
            rows.created_at.push(event.accepted_at.as_millis());
            rows.item.push(item);
        }
        self.last.push(count(self.delivery.id.len()));
    }

    fn params(&self) -> [Param<'_>; 30] {
        let rows = &self.delivery;
        [
            &self.id,
            &self.tenant,
            &self.topic,
            &self.event_type,
            &self.attributes,
            &self.key,
            &self.content_type,
            &self.payload,
            &self.accepted_at,
            &self.catalog,
            &self.idempotency_key,
            &self.fingerprint,
            &self.first,
            &self.last,
            &rows.id,
            &rows.event,
            &rows.subscription,
            &rows.tenant,
            &rows.shard,
            &rows.lane_slot,
            &rows.lane,
            &rows.due_at,
            &rows.created_at,
            &rows.item,
            &self.publisher_id,
            &self.deliver_at,
            &self.retention,
            &rows.budget_began,
            &self.kind,
            &self.trace,
        ]
    }
}

async fn accept_batch(client: &Object, batch: &[&NewEvent]) -> Outcome<Vec<Accepted>> {
    let columns = Columns::of(batch);
    let tenants = lock::sorted(batch.iter().map(|new| lock::tenant_slot(new.event.tenant)));
    let lanes = lock::sorted(columns.delivery.lane_slot.iter().flatten().map(|s| i32::from(*s)));
    let (key_tenants, keys): (Vec<Uid>, Vec<&str>) = batch
        .iter()
        .filter_map(|new| {
            Some((Uid::from(new.event.tenant), new.idempotency.as_ref()?.key.as_str()))
        })
        .unzip();
    let tenants: [Param<'_>; 2] = [&lock::TENANTS, &tenants];
    let lane_params: [Param<'_>; 2] = [&lock::LANES, &lanes];
    let params = columns.params();
    let key_params: [Param<'_>; 2] = [&key_tenants, &keys];
    let scheduled = columns.scheduled.params();
    let expiring = &columns.expiring;
    let expiring: [Param<'_>; 3] = [&expiring.tenant, &expiring.id, &expiring.at];

    let mut steps = vec![step(client, sql::LOCK_SHARED, &tenants).await?];
    if !lanes.is_empty() {
        steps.push(step(client, sql::LOCK_EXCLUSIVE, &lane_params).await?);
    }
    let main = steps.len();
    steps.push(step(client, sql::ACCEPT, &params).await?);
    if !keys.is_empty() {
        steps.push(step(client, sql::KEYS_OF, &key_params).await?);
    }
    // After the others, whose places in the answer are known.
    if !columns.scheduled.is_empty() {
        steps.push(step(client, sql::SCHEDULE, &scheduled).await?);
    }
    if !columns.expiring.id.is_empty() {
        steps.push(step(client, sql::EXPIRY_NEW, &expiring).await?);
    }
    let rows = pipeline(client, &steps).await?;
    let stored = stored_items(&rows[main], batch.len())?;
    let found = rows.get(main + 1).filter(|_| !keys.is_empty());
    let keys = stored_keys(found.map_or(&[][..], Vec::as_slice))?;
    Ok(replies(batch, stored, &keys))
}

/// Stores events inside a transaction of the caller, who holds the locks of their tenants and lanes; how many were
/// stored.
pub(crate) async fn store_within(client: &Object, batch: &[&NewEvent]) -> Outcome<usize> {
    let columns = Columns::of(batch);
    let rows = query(client, sql::ACCEPT, &columns.params()).await?;
    if !columns.scheduled.is_empty() {
        query(client, sql::SCHEDULE, &columns.scheduled.params()).await?;
    }
    let Expiring { tenant, id, at } = &columns.expiring;
    if !id.is_empty() {
        query(client, sql::EXPIRY_NEW, &[tenant, id, at]).await?;
    }
    Ok(stored_items(&rows, batch.len())?.into_iter().flatten().count())
}

/// For each item that was stored, its deliveries.
fn stored_items(rows: &[Row], items: usize) -> Outcome<Vec<Option<Vec<Placed>>>> {
    let mut stored: Vec<Option<Vec<Placed>>> = vec![None; items];
    let Some(row) = rows.first() else { return Ok(stored) };
    let reader = Reader::new(row, "event", "id");
    let index = |item: i32| usize::try_from(item).ok().and_then(|item| item.checked_sub(1));
    let unknown = || reader.corrupt("item", "no such item");
    for item in reader.get::<Option<Vec<i32>>>("items")?.unwrap_or_default() {
        let slot = index(item).and_then(|index| stored.get_mut(index)).ok_or_else(unknown)?;
        *slot = Some(Vec::new());
    }
    let placed: Vec<i32> = reader.get::<Option<_>>("placed_items")?.unwrap_or_default();
    let seqs: Vec<i64> = reader.get::<Option<_>>("seqs")?.unwrap_or_default();
    let parked: Vec<bool> = reader.get::<Option<_>>("parked")?.unwrap_or_default();
    for ((item, seq), parked) in placed.into_iter().zip(seqs).zip(parked) {
        let slot = index(item).and_then(|index| stored.get_mut(index));
        let slot = slot.and_then(Option::as_mut).ok_or_else(unknown)?;
        let seq = u64::try_from(seq).map_err(|_| reader.corrupt("seq", "a negative number"))?;
        slot.push(Placed { seq, parked });
    }
    for placed in stored.iter_mut().flatten() {
        placed.sort_unstable_by_key(|placed| placed.seq);
    }
    Ok(stored)
}

/// What is stored under a key.
struct Owner {
    fingerprint: Vec<u8>,
    event: EventId,
}

type Keys = HashMap<(TenantId, String), Owner>;

fn stored_keys(rows: &[Row]) -> Result<Keys, Corrupt> {
    let mut keys = HashMap::with_capacity(rows.len());
    for row in rows {
        let reader = Reader::new(row, "idempotency", "event");
        let key = (reader.id("tenant")?, reader.get::<&str>("key")?.to_owned());
        let fingerprint = reader.get::<&[u8]>("fingerprint")?.to_vec();
        keys.insert(key, Owner { fingerprint, event: reader.id("event")? });
    }
    Ok(keys)
}

fn replies(batch: &[&NewEvent], stored: Vec<Option<Vec<Placed>>>, keys: &Keys) -> Vec<Accepted> {
    let places: HashMap<EventId, usize> = match keys.is_empty() {
        true => HashMap::new(),
        false => batch.iter().enumerate().map(|(index, new)| (new.event.id, index)).collect(),
    };
    let reply = |(index, (new, placed)): (usize, (&&NewEvent, Option<Vec<Placed>>))| {
        if let Some(placed) = placed {
            return Accepted::Stored(placed);
        }
        let owner = new.idempotency.as_ref().and_then(|idempotency| {
            let key = (new.event.tenant, idempotency.key.as_str().to_owned());
            Some((keys.get(&key)?, idempotency))
        });
        match owner {
            // Its key was taken by a later item of this batch: it was stale when its turn came.
            Some((owner, _)) if places.get(&owner.event).is_some_and(|at| *at > index) => {
                Accepted::Stale
            }
            Some((owner, idempotency)) if owner.fingerprint == idempotency.fingerprint => {
                Accepted::Duplicate { event: owner.event }
            }
            Some((owner, _)) => Accepted::Conflict { event: owner.event },
            None => Accepted::Stale,
        }
    };
    batch.iter().zip(stored).enumerate().map(reply).collect()
}
