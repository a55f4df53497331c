//! Intake: publishes are grouped, matched with the catalog and committed with their deliveries.
//!
//! While one group commits, the next one forms; nothing waits for a timer. The reply to a publisher
//! leaves after the commit. What was committed goes to the scheduler in memory when this node owns
//! the shard; otherwise the owner is woken.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::policy::headers::check_value;
use posthorn_domain::{
    Clock, Delivery, DeliveryState, Event, EventId, EventType, Idempotency, LaneKey, Shard,
    TenantId, Timestamp, TopicName, alternatives,
};
use posthorn_store::{Accepted, NewDelivery, NewEvent, Store, Work};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::admission::{Admission, Tally, Ticket};
use crate::catalog::Catalog;
use crate::chance::Chance;
use crate::error::{Error, Result, chain};
use crate::metrics;
use crate::options::Options;
use crate::request::EventLookup;
use crate::scheduler::Input;
use crate::wakes::Wakes;

/// Publishes that may wait for a group. When it is full, publishers wait: back-pressure, not memory.
pub(crate) const QUEUE: usize = 4_096;
/// Payload bytes of one accept transaction, so that one commit stays short.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How often a plan is made again because the catalog changed under it.
const REPLANS_MAX: u32 = 50;

/// What a publisher says.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The stream.
    pub topic: TopicName,
    /// What happened.
    pub event_type: EventType,
    /// What filters look at.
    pub attributes: BTreeMap<String, String>,
    /// The key of ordered lanes.
    pub key: Option<LaneKey>,
    /// The media type of the payload.
    pub content_type: String,
    /// The payload.
    pub payload: Bytes,
    /// Protection against publishing twice.
    pub idempotency: Option<Idempotency>,
}

/// What the publisher gets back. It means: committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The event's id.
    pub id: EventId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// How many subscriptions will get it.
    pub deliveries: usize,
    /// Whether it had been published before under the same key.
    pub duplicate: bool,
}

/// A publish on its way.
pub(crate) struct Pending {
    event: Arc<Event>,
    idempotency: Option<Idempotency>,
    reply: oneshot::Sender<Result<Published>>,
    replans: u32,
    ticket: Ticket,
}

/// The publisher's side.
#[derive(Clone)]
pub(crate) struct Handle {
    queue: mpsc::Sender<Vec<Pending>>,
    clock: Arc<dyn Clock>,
    chance: Arc<Chance>,
    payload_bytes: usize,
    admission: Arc<Admission>,
}

impl Handle {
    pub(crate) fn new(
        queue: mpsc::Sender<Vec<Pending>>,
        clock: Arc<dyn Clock>,
        chance: Arc<Chance>,
        payload_bytes: usize,
        admission: Arc<Admission>,
    ) -> Self {
        Self { queue, clock, chance, payload_bytes, admission }
    }

    fn check(&self, publish: &Publish) -> Result<()> {
        // A receiver gets one form, so each of them may be as large as a payload.
        let size = match publish.content_type.as_str() {
            alternatives::MEDIA_TYPE => alternatives::largest(&publish.payload)
                .map_err(|e| Error::Event { field: "payload", problem: e.to_string() })?,
            _ => publish.payload.len(),
        };
        if size > self.payload_bytes {
            return Err(Error::PayloadTooLarge { size, limit: self.payload_bytes });
        }
        check_value(&publish.content_type)
            .map_err(|e| Error::Event { field: "content_type", problem: e.to_string() })?;
        Event::check_attributes(&publish.attributes)
            .map_err(|e| Error::Event { field: "attributes", problem: e.to_string() })
    }

    /// Publishes several; each answer stands for itself.
    pub(crate) async fn publish(
        &self,
        tenant: TenantId,
        batch: Vec<Publish>,
    ) -> Result<Vec<Result<Published>>> {
        let (now, since) = (self.clock.now(), Instant::now());
        let mut group = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        for publish in batch {
            if let Err(e) = self.check(&publish) {
                answers.push(Err(e));
                continue;
            }
            let event = Event {
                id: self.chance.event_id(now),
                tenant,
                topic: publish.topic,
                event_type: publish.event_type,
                attributes: publish.attributes,
                key: publish.key,
                content_type: publish.content_type,
                payload: publish.payload,
                accepted_at: now,
            };
            let (reply, answer) = oneshot::channel();
            group.push(Pending {
                event: Arc::new(event),
                idempotency: publish.idempotency,
                reply,
                replans: 0,
                ticket: self.admission.wait(since),
            });
            answers.push(Ok(answer));
        }
        if !group.is_empty() {
            self.queue.send(group).await.map_err(|_| Error::Busy("it is stopping"))?;
        }
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(match answer {
                Ok(answer) => answer.await.unwrap_or_else(|_| Err(unanswered())),
                Err(e) => Err(e),
            });
        }
        Ok(results)
    }
}

/// A publish whose commit nobody saw the end of: it may or may not be stored.
fn unanswered() -> Error {
    let context = "the server stopped before it could answer";
    Error::Store(posthorn_store::Error::Unknown { context, source: None })
}

/// What intake is made of.
pub(crate) struct Intake {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) options: Arc<Options>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) wakes: Wakes,
    pub(crate) failed: mpsc::UnboundedSender<String>,
    pub(crate) admission: Arc<Admission>,
}

/// A group after its commit: what must be planned again.
struct Outcome {
    again: Vec<Pending>,
}

impl Intake {
    /// Runs until the queue is closed and everything in it is answered.
    pub(crate) async fn run(self, mut queue: mpsc::Receiver<Vec<Pending>>) {
        let this = Arc::new(self);
        let mut under_way: JoinSet<Outcome> = JoinSet::new();
        let mut waiting: Vec<Pending> = Vec::new();
        let mut open = true;
        while open || !waiting.is_empty() || !under_way.is_empty() {
            if !waiting.is_empty() && under_way.len() < this.options.accept_pipeline.max(1) {
                let group = this.cut(&mut waiting);
                under_way.spawn(Arc::clone(&this).commit(group));
                continue;
            }
            tokio::select! {
                biased;
                Some(outcome) = under_way.join_next() => match outcome {
                    Ok(outcome) => waiting.splice(0..0, outcome.again).for_each(drop),
                    Err(e) => error!(error = %e, "an accept crashed; this is a defect"),
                },
                more = queue.recv(), if open && waiting.len() < QUEUE => match more {
                    Some(group) => {
                        waiting.extend(group);
                        while waiting.len() < QUEUE && let Ok(group) = queue.try_recv() {
                            waiting.extend(group);
                        }
                    }
                    None => open = false,
                },
            }
        }
    }

    /// Takes the next group off the queue.
    fn cut(&self, waiting: &mut Vec<Pending>) -> Vec<Pending> {
        let mut bytes = 0;
        let fits = waiting.iter().take(self.options.accept_batch).take_while(|pending| {
            bytes += pending.event.payload.len();
            bytes <= BATCH_BYTES_MAX
        });
        let count = fits.count().max(1);
        let rest = waiting.split_off(count);
        std::mem::replace(waiting, rest)
    }

    async fn commit(self: Arc<Self>, group: Vec<Pending>) -> Outcome {
        let mut planned = Vec::with_capacity(group.len());
        let mut batch = Vec::with_capacity(group.len());
        for pending in group {
            match self.catalog.plan(&pending.event) {
                Ok(plan) => {
                    let now = pending.event.accepted_at;
                    // One for all, so that a payload is read at most once.
                    let known = EventLookup::new(&pending.event);
                    let deliveries = plan
                        .matches
                        .iter()
                        .map(|view| NewDelivery {
                            id: self.chance.delivery_id(now),
                            subscription: view.subscription.id,
                            lane: view.lane(&known),
                            due_at: now,
                        })
                        .collect();
                    let new = NewEvent {
                        event: Arc::clone(&pending.event),
                        idempotency: pending.idempotency.clone(),
                        catalog: plan.version,
                        deliveries,
                    };
                    batch.push(new);
                    planned.push(pending);
                }
                // The catalog of this node may be behind: what it does not know may exist.
                Err(e) if pending.replans == 0 => {
                    drop(e);
                    planned.push(pending);
                    batch.push(self.unplannable(planned.last()));
                }
                Err(e) => {
                    refused(&e);
                    drop(pending.reply.send(Err(e)));
                }
            }
        }
        if batch.is_empty() {
            return Outcome { again: Vec::new() };
        }
        ::metrics::histogram!(metrics::ACCEPT_BATCH).record(batch.len() as f64);
        #[cfg(feature = "plant")]
        if crate::plant::active(crate::plant::Plant::AckBeforeCommit) {
            for (pending, new) in planned.drain(..).zip(&batch) {
                let (id, deliveries) = (new.event.id, new.deliveries.len());
                let accepted_at = pending.event.accepted_at;
                let told = Published { id, accepted_at, deliveries, duplicate: false };
                drop(pending.reply.send(Ok(told)));
            }
        }
        match self.store.accept(batch.clone()).await {
            Ok(answers) => self.settle(planned, batch, answers).await,
            Err(e) => {
                self.fail(planned, &e);
                Outcome { again: Vec::new() }
            }
        }
    }

    /// An event that cannot be planned is sent with an impossible version: the store checks its
    /// idempotency key first, and otherwise answers that the plan is stale, so that it is planned
    /// again on a fresh catalog before it is refused.
    fn unplannable(&self, pending: Option<&Pending>) -> NewEvent {
        let pending = pending.expect("the caller has just pushed it");
        NewEvent {
            event: Arc::clone(&pending.event),
            idempotency: pending.idempotency.clone(),
            catalog: posthorn_domain::CatalogVersion(u64::MAX),
            deliveries: Vec::new(),
        }
    }

    async fn settle(
        &self,
        planned: Vec<Pending>,
        batch: Vec<NewEvent>,
        answers: Vec<Accepted>,
    ) -> Outcome {
        let mut again = Vec::new();
        let mut works = Vec::new();
        let youngest = planned.iter().map(|pending| pending.ticket.since).max();
        if let Some(youngest) = youngest {
            self.admission.committed(planned.len(), youngest);
        }
        let mut tally = Tally::new(&self.admission);
        for ((pending, new), answer) in planned.into_iter().zip(batch).zip(answers) {
            let published = |id, deliveries, duplicate| Published {
                id,
                accepted_at: pending.event.accepted_at,
                deliveries,
                duplicate,
            };
            let answer = match answer {
                Accepted::Stored(placed) => {
                    ::metrics::counter!(metrics::ACCEPTED).increment(1);
                    ::metrics::counter!(metrics::FANNED_OUT).increment(placed.len() as u64);
                    let count = placed.len();
                    let ends_here =
                        |new: &&NewDelivery| self.admission.counts(Shard::of(new.subscription));
                    let counted = new.deliveries.iter().filter(ends_here).count();
                    tally.add(new.event.tenant, i64::try_from(counted).unwrap_or(i64::MAX));
                    for (delivery, placed) in new.deliveries.into_iter().zip(placed) {
                        if !placed.parked {
                            works.push(work(&new.event, delivery, placed.seq));
                        }
                    }
                    Ok(published(new.event.id, count, false))
                }
                Accepted::Duplicate { event } => Ok(published(event, 0, true)),
                Accepted::Conflict { event } => Err(Error::KeyReused { event }),
                Accepted::Stale if pending.replans < REPLANS_MAX => {
                    again.push(Pending { replans: pending.replans + 1, ..pending });
                    continue;
                }
                Accepted::Stale => Err(Error::Busy("the catalog changes too fast")),
            };
            if let Err(e) = &answer {
                refused(e);
            }
            drop(pending.reply.send(answer));
        }
        drop(tally);
        if !works.is_empty() {
            for work in &works {
                self.wakes.add(work.delivery.shard());
            }
            drop(self.scheduler.send(Input::Work(works)).await);
        }
        // Without a fresh catalog nobody can say whether a topic is really unknown.
        if !again.is_empty() && !self.refresh().await {
            for pending in again.drain(..) {
                let context = "reading the catalog";
                let e = posthorn_store::Error::Unavailable { context, source: None };
                drop(pending.reply.send(Err(Error::Store(e))));
            }
        }
        Outcome { again }
    }

    /// Loads what changed in the catalog; false when the store could not answer.
    async fn refresh(&self) -> bool {
        match self.store.catalog_since(self.catalog.version()).await {
            Ok(delta) => {
                let changed = self.catalog.apply(delta);
                if !changed.is_empty() {
                    drop(self.scheduler.send(Input::Changed(changed)).await);
                }
                true
            }
            Err(e) => {
                warn!(error = %chain(&e), "the catalog could not be read");
                false
            }
        }
    }

    fn fail(&self, planned: Vec<Pending>, e: &posthorn_store::Error) {
        ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "accept").increment(1);
        let text = chain(e);
        if matches!(e, posthorn_store::Error::Fatal { .. }) {
            drop(self.failed.send(text.clone()));
        }
        warn!(error = %text, events = planned.len(), "events could not be stored");
        let unknown = matches!(e, posthorn_store::Error::Unknown { .. });
        for pending in planned {
            let e = if unknown {
                posthorn_store::Error::Unknown { context: "storing the event", source: None }
            } else {
                posthorn_store::Error::Unavailable { context: "storing the event", source: None }
            };
            drop(pending.reply.send(Err(Error::Store(e))));
        }
    }
}

fn refused(e: &Error) {
    let reason = match e {
        Error::UnknownTopic(_) => "unknown_topic",
        Error::KeyReused { .. } => "key_reused",
        Error::NotFound(_) => "unknown_tenant",
        _ => "other",
    };
    ::metrics::counter!(metrics::PUBLISH_REFUSED, "reason" => reason).increment(1);
}

fn work(event: &Arc<Event>, new: NewDelivery, seq: u64) -> Work {
    Work {
        delivery: Delivery {
            id: new.id,
            event: event.id,
            subscription: new.subscription,
            tenant: event.tenant,
            lane: new.lane,
            seq,
            state: DeliveryState::Pending,
            due_at: new.due_at,
            attempts: 0,
            budget_base: 0,
            budget_began: event.accepted_at,
            created_at: event.accepted_at,
            ended_at: None,
        },
        event: Arc::clone(event),
    }
}
