//! Finding due work, and writing down leases.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Delivery, DeliveryId, Event, EventId, Fence, Shard};
use posthorn_store::{Claim, DueSubscription, PendingAsk, Result, Work};
use tracing::error;

use crate::codec::{self, Reader, Uid, due, limit};
use crate::failure::Outcome;
use crate::session::{Operation, Param, Session, pipeline, query, step};
use crate::{lease, lock, sql};

const DUE: Operation = Operation::read("due_subscriptions", "find subscriptions with work");
const PENDING: Operation = Operation::read("pending", "read due deliveries");
const CLAIM: Operation = Operation::write("claim", "store leases");

pub(crate) async fn due_subscriptions(
    session: &Session,
    shards: &[Shard],
) -> Result<Vec<DueSubscription>> {
    let shards = lease::numbers(shards);
    session
        .run(DUE, move |client| {
            let shards = shards.clone();
            Box::pin(async move {
                let rows = query(client, sql::DUE_SUBSCRIPTIONS, &[&shards]).await?;
                let mut found = Vec::with_capacity(rows.len());
                for row in &rows {
                    let reader = Reader::new(row, "delivery_live", "subscription");
                    found.push(DueSubscription {
                        subscription: reader.id("subscription")?,
                        due_at: reader.time("due_at")?,
                    });
                }
                Ok(found)
            })
        })
        .await
}

pub(crate) async fn pending(
    session: &Session,
    asks: Vec<PendingAsk>,
    max_bytes: usize,
) -> Result<Vec<Vec<Work>>> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let asks = Arc::new(asks);
    session
        .run(PENDING, move |client| {
            let asks = Arc::clone(&asks);
            Box::pin(async move { read_pending(client, &asks, max_bytes).await })
        })
        .await
}

async fn read_pending(
    client: &Object,
    asks: &[PendingAsk],
    max_bytes: usize,
) -> Outcome<Vec<Vec<Work>>> {
    let shards: Vec<Shard> = asks.iter().map(|ask| Shard::of(ask.subscription)).collect();
    let shards = lease::numbers(&shards);
    let subscriptions: Vec<Uid> = asks.iter().map(|ask| ask.subscription.into()).collect();
    let froms: Vec<i64> = asks.iter().map(|ask| ask.from.as_millis()).collect();
    let untils: Vec<i64> = asks.iter().map(|ask| ask.until.as_millis()).collect();
    let limits: Vec<i64> = asks.iter().map(|ask| limit(ask.limit)).collect();
    let params: [Param<'_>; 5] = [&shards, &subscriptions, &froms, &untils, &limits];
    let rows = query(client, sql::PENDING, &params).await?;
    let mut found: Vec<(usize, Delivery)> = Vec::with_capacity(rows.len());
    for row in &rows {
        let item: usize = Reader::new(row, "delivery_live", "id").small("item")?;
        found.push((item.saturating_sub(1), codec::delivery(row)?));
    }
    let events = events_of(client, found.iter().map(|(_, d)| d), max_bytes).await?;
    let mut replies: Vec<Vec<Work>> = asks.iter().map(|_| Vec::new()).collect();
    let cut = events.values().map(|event| event.payload.len()).sum::<usize>() > max_bytes;
    let mut any = false;
    for (item, delivery) in found {
        let Some(event) = events.get(&delivery.event) else {
            if cut && any {
                // The rest of the list did not fit.
                break;
            }
            // It ended and was removed between the two statements; otherwise somebody has been at
            // the tables, and one lost event must not stop all those behind it.
            error!(delivery = %delivery.id, "The event of a delivery is missing");
            continue;
        };
        any = true;
        if let Some(reply) = replies.get_mut(item) {
            reply.push(Work { delivery, event: Arc::clone(event) });
        }
    }
    Ok(replies)
}

/// The events of deliveries, each once, in their order, until the payloads exceed `max_bytes`.
pub(crate) async fn events_of(
    client: &Object,
    deliveries: impl Iterator<Item = &Delivery>,
    max_bytes: usize,
) -> Outcome<HashMap<EventId, Arc<Event>>> {
    let mut seen = std::collections::HashSet::new();
    let (tenants, ids): (Vec<Uid>, Vec<Uid>) = deliveries
        .filter(|delivery| seen.insert(delivery.event))
        .map(|delivery| (Uid::from(delivery.tenant), Uid::from(delivery.event)))
        .unzip();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = query(client, sql::EVENTS_OF, &[&tenants, &ids, &limit(max_bytes)]).await?;
    let mut events = HashMap::with_capacity(rows.len());
    for row in &rows {
        let event = codec::shared_event(row, "id")?;
        events.insert(event.id, event);
    }
    Ok(events)
}

/// A delivery with its event, unless that is gone.
pub(crate) async fn work_of(client: &Object, delivery: &Delivery) -> Outcome<Option<Work>> {
    let events = events_of(client, std::iter::once(delivery), usize::MAX).await?;
    let event = events.get(&delivery.event);
    Ok(event.map(|event| Work { delivery: delivery.clone(), event: Arc::clone(event) }))
}

/// The columns of fences.
#[derive(Default)]
pub(crate) struct Fences {
    pub(crate) shard: Vec<i16>,
    pub(crate) epoch: Vec<i64>,
    pub(crate) node: Vec<Uid>,
}

impl Fences {
    pub(crate) fn push(&mut self, fence: &Fence) {
        self.shard.push(i16::try_from(fence.shard.number()).unwrap_or(i16::MAX));
        self.epoch.push(i64::try_from(fence.epoch.0).unwrap_or(i64::MAX));
        self.node.push(fence.node.into());
    }

    pub(crate) fn slots(&self) -> Vec<i32> {
        lock::sorted(self.shard.iter().map(|shard| i32::from(*shard)))
    }
}

/// Cuts a batch into runs in which no delivery occurs twice: a statement changes a row only once.
pub(crate) fn runs<T>(batch: &[T], id: impl Fn(&T) -> DeliveryId) -> Vec<&[T]> {
    let mut runs = Vec::new();
    let mut seen = std::collections::HashSet::with_capacity(batch.len());
    let mut start = 0;
    for (index, item) in batch.iter().enumerate() {
        if !seen.insert(id(item)) {
            runs.push(&batch[start..index]);
            seen.clear();
            seen.insert(id(item));
            start = index;
        }
    }
    runs.push(&batch[start..]);
    runs
}

pub(crate) async fn claim(session: &Session, batch: Vec<Claim>) -> Result<Vec<bool>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Arc::new(batch);
    session
        .run(CLAIM, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { claim_batch(client, &batch).await })
        })
        .await
}

#[derive(Default)]
struct ClaimColumns {
    id: Vec<Uid>,
    fence: Fences,
    expected: Vec<i32>,
    until: Vec<i64>,
    revival: Vec<i32>,
}

async fn claim_batch(client: &Object, batch: &[Claim]) -> Outcome<Vec<bool>> {
    let runs = runs(batch, |claim| claim.delivery);
    let columns: Vec<ClaimColumns> = runs
        .iter()
        .map(|run| {
            let mut columns = ClaimColumns::default();
            for claim in *run {
                columns.id.push(claim.delivery.into());
                columns.fence.push(&claim.fence);
                columns.expected.push(i32::try_from(claim.expected_attempts).unwrap_or(-1));
                columns.until.push(due(claim.until));
                let revival = i32::try_from(claim.expected_revival).unwrap_or(-1);
                columns.revival.push(revival);
            }
            columns
        })
        .collect();
    let slots = lock::sorted(columns.iter().flat_map(|c| c.fence.slots()));
    let lock_params: [Param<'_>; 2] = [&lock::SHARDS, &slots];
    let params: Vec<[Param<'_>; 7]> = columns
        .iter()
        .map(|c| -> [Param<'_>; 7] {
            let Fences { shard, epoch, node } = &c.fence;
            [&c.id, shard, epoch, node, &c.expected, &c.until, &c.revival]
        })
        .collect();
    let mut steps = vec![step(client, sql::LOCK_SHARED, &lock_params).await?];
    for params in &params {
        steps.push(step(client, sql::CLAIM, params).await?);
    }
    let rows = pipeline(client, &steps).await?;
    let mut replies = vec![false; batch.len()];
    let mut start = 0;
    for (run, rows) in runs.iter().zip(&rows[1..]) {
        for row in rows {
            let item: usize = Reader::new(row, "delivery_live", "item").small("item")?;
            if let Some(reply) = replies.get_mut(start + item.saturating_sub(1)) {
                *reply = true;
            }
        }
        start += run.len();
    }
    Ok(replies)
}
