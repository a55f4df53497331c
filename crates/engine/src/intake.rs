//! Intake: publishes are matched with the catalog, grouped and committed with their deliveries.
//!
//! Whoever publishes matches its own events first ([`crate::matching`]), so that what they cost is its
//! own affair. Then they wait in the line of their tenant ([`lines`]). While one group commits, the next
//! one forms; nothing waits for a timer. A group is bounded in events, deliveries and bytes, and tenants
//! take turns in it. The reply to a publisher leaves after the commit. What was committed goes to the
//! scheduler in memory when this node owns the shard; otherwise the owner is woken.

mod lines;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use posthorn_domain::limits::{DELIVER_AT_AHEAD_MAX, RETENTION_MIN};
use posthorn_domain::policy::headers::check_value;
use posthorn_domain::{
    CatalogVersion, Clock, Delivery, DeliveryState, Event, EventId, EventType, Idempotency,
    IdempotencyKey, LaneKey, Shard, Span, TenantId, Timestamp, TopicName, TraceContext,
    alternatives,
};
use posthorn_store::{Accepted, NewDelivery, NewEvent, Store, Work};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::error;

use crate::admission::{Admission, Tally, Ticket};
use crate::catalog::Catalog;
use crate::chance::Chance;
use crate::error::{Error, Result, chain};
use crate::matching::{Matcher, Plan, Slice};
use crate::metrics;
use crate::options::Options;
use crate::rollups::Counting;
use crate::scheduler::{self, Input};
use crate::seldom::Seldom;
use crate::tail::Hints;
use crate::trace::{Publishes, Tracer};
use crate::wakes::Wakes;

use lines::{Group, Lines, Room};

/// Calls on their way into their tenants' lines, which are taken out at once. How many events may wait in
/// a line is bounded for each tenant ([`crate::admission`]).
pub(crate) const QUEUE: usize = 4_096;
/// Payload bytes of one accept transaction, so that one commit stays short.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// A version that no catalog has, for events without a plan.
const UNPLANNED: CatalogVersion = CatalogVersion(u64::MAX);
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
    /// What the publisher calls it. Where that is the key of `idempotency`, too, both say so.
    pub publisher_id: Option<IdempotencyKey>,
    /// When it is to be delivered; a time in the past means now.
    pub deliver_at: Option<Timestamp>,
    /// How long it is kept once its deliveries have ended, where that is shorter than usual.
    pub retention: Option<Span>,
    /// The trace it belongs to, as its publisher says. No part of what was published: a repeat may have another.
    pub trace: Option<TraceContext>,
}

impl Publish {
    /// Whether an event can be published at all, wherever it would go.
    pub(crate) fn check(&self, payload_bytes: usize) -> Result<()> {
        // A receiver gets one form, so each of them may be as large as a payload.
        let size = match self.content_type.as_str() {
            alternatives::MEDIA_TYPE => alternatives::largest(&self.payload)
                .map_err(|e| Error::Event { field: "payload", problem: e.to_string() })?,
            _ => self.payload.len(),
        };
        if size > payload_bytes {
            return Err(Error::PayloadTooLarge { size, limit: payload_bytes });
        }
        check_value(&self.content_type)
            .map_err(|e| Error::Event { field: "content_type", problem: e.to_string() })?;
        Event::check_attributes(&self.attributes)
            .map_err(|e| Error::Event { field: "attributes", problem: e.to_string() })
    }

    /// Whether the times it asks for are possible. `kept` is how long events are kept.
    pub(crate) fn check_times(&self, now: Timestamp, kept: Span) -> Result<()> {
        if self.deliver_at.is_some_and(|at| at > now.plus(DELIVER_AT_AHEAD_MAX)) {
            let problem = format!("must be at most {DELIVER_AT_AHEAD_MAX} ahead");
            return Err(Error::Event { field: "deliver_at", problem });
        }
        match self.retention {
            Some(asked) if asked < RETENTION_MIN => {
                let problem = format!("must be at least {RETENTION_MIN}");
                Err(Error::Event { field: "retention", problem })
            }
            Some(asked) if asked > kept => {
                let problem =
                    format!("must be at most {kept}: that is how long the server keeps events");
                Err(Error::Event { field: "retention", problem })
            }
            _ => Ok(()),
        }
    }

    /// SHA-256 over everything that was published. Every part is preceded by its length, so that no two
    /// different events have the same encoding.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Context::new(&SHA256);
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(b"posthorn event 1");
        part(self.topic.as_str().as_bytes());
        part(self.event_type.as_str().as_bytes());
        match &self.key {
            None => part(b"-"),
            Some(key) => {
                part(b"+");
                part(key.as_str().as_bytes());
            }
        }
        part(&(self.attributes.len() as u64).to_be_bytes());
        for (name, value) in &self.attributes {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(self.content_type.as_bytes());
        part(&self.payload);
        // What was published before these existed has none, and stays the same.
        if let Some(at) = self.deliver_at {
            part(b"deliver_at");
            part(&at.as_millis().to_be_bytes());
        }
        if let Some(retention) = self.retention {
            part(b"retention");
            part(&retention.as_millis().to_be_bytes());
        }
        let digest = hash.finish();
        std::array::from_fn(|index| digest.as_ref()[index])
    }
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
    /// Who gets it; `None` when that could not be found out with what this node knows of the catalog.
    plan: Option<Plan>,
    /// Which call it was published by.
    call: u64,
    ticket: Ticket,
    /// Its place in the tenant's line.
    _room: Option<Arc<OwnedSemaphorePermit>>,
}

impl Pending {
    fn deliveries(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| plan.matches.len())
    }
}

/// The publisher's side.
#[derive(Clone)]
pub(crate) struct Handle {
    queue: mpsc::Sender<Vec<Pending>>,
    clock: Arc<dyn Clock>,
    chance: Arc<Chance>,
    payload_bytes: usize,
    /// How long events are kept.
    kept: Span,
    admission: Arc<Admission>,
    matcher: Arc<Matcher>,
    calls: Arc<AtomicU64>,
    tracer: Option<Arc<dyn Tracer>>,
}

impl Handle {
    pub(crate) fn new(
        queue: mpsc::Sender<Vec<Pending>>,
        clock: Arc<dyn Clock>,
        chance: Arc<Chance>,
        (payload_bytes, kept): (usize, Span),
        admission: Arc<Admission>,
        matcher: Arc<Matcher>,
        tracer: Option<Arc<dyn Tracer>>,
    ) -> Self {
        let calls = Arc::default();
        Self { queue, clock, chance, payload_bytes, kept, admission, matcher, calls, tracer }
    }

    /// Publishes several; each answer stands for itself.
    pub(crate) async fn publish(
        &self,
        tenant: TenantId,
        batch: Vec<Publish>,
    ) -> Result<Vec<Result<Published>>> {
        if tenant == TenantId::SYSTEM {
            return Err(Error::TenantReserved);
        }
        let mut traced =
            self.tracer.as_ref().map(|tracer| Publishes::new(tracer, self.clock.now()));
        let gauge = self.admission.gauge(tenant);
        let room = gauge.room(batch.len()).await;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        // In the order of the call: lists, replays and streams go by them.
        let ids = self.chance.event_ids(now, batch.len());
        let mut slice = Slice::default();
        let mut group = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        for (publish, id) in batch.into_iter().zip(ids) {
            if publish.topic.is_reserved() {
                let e = Error::TopicReserved(publish.topic);
                refused(&e);
                answers.push(Err(e));
                continue;
            }
            let checked = publish.check(self.payload_bytes);
            if let Err(e) = checked.and_then(|()| publish.check_times(now, self.kept)) {
                answers.push(Err(e));
                continue;
            }
            let (trace, publishing) = match &traced {
                None => (publish.trace, None),
                Some(traced) => traced.begin(id, publish.trace),
            };
            let event = Arc::new(Event {
                id,
                tenant,
                topic: publish.topic,
                event_type: publish.event_type,
                attributes: publish.attributes,
                key: publish.key,
                content_type: publish.content_type,
                payload: publish.payload,
                accepted_at: now,
                publisher_id: publish.publisher_id,
                deliver_at: publish.deliver_at.filter(|at| *at > now),
                retention: publish.retention,
                expunged_at: None,
                trace,
            });
            if let (Some(traced), Some(publishing)) = (&mut traced, publishing) {
                traced.open(answers.len(), publishing, &event);
            }
            let plan = match self.matcher.plan(&event, &mut slice).await {
                Err(e @ (Error::TooMany { .. } | Error::Busy(_))) => {
                    refused(&e);
                    answers.push(Err(e));
                    continue;
                }
                // Matched with all it takes; once more would cost its tenant the same again.
                Err(e @ (Error::MatchingTooCostly { .. } | Error::FanOut { .. }))
                    if publish.idempotency.is_none() =>
                {
                    refused(&e);
                    answers.push(Err(e));
                    continue;
                }
                // Whatever else is wrong with it, it may be a repeat, and the catalog of this node may
                // be behind.
                plan => plan.ok(),
            };
            let (reply, answer) = oneshot::channel();
            group.push(Pending {
                event,
                idempotency: publish.idempotency,
                reply,
                replans: 0,
                plan,
                call,
                ticket: self.admission.wait(&gauge, Instant::now()),
                _room: room.clone(),
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
        if let Some(traced) = traced {
            traced.end(&results);
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
    pub(crate) matcher: Arc<Matcher>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) options: Arc<Options>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) wakes: Wakes,
    pub(crate) failed: mpsc::UnboundedSender<String>,
    pub(crate) admission: Arc<Admission>,
    /// For the word that nothing can be stored.
    pub(crate) unstored: Seldom,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counting: Arc<Counting>,
    pub(crate) hints: Arc<Hints>,
}

/// A group after its commit: what must be planned again, and whose lines may go on.
struct Outcome {
    again: Vec<Pending>,
    held: Vec<TenantId>,
}

impl Outcome {
    /// One for each tenant of which something must be planned again, so that none waits for what another's
    /// filters cost, and whose lines may go on at once.
    fn by_tenant(self) -> (Vec<Outcome>, Vec<TenantId>) {
        let Self { again, mut held } = self;
        let mut parts: Vec<Outcome> = Vec::new();
        for pending in again {
            let tenant = pending.event.tenant;
            match parts.last_mut() {
                Some(part) if part.again[0].event.tenant == tenant => part.again.push(pending),
                _ => {
                    let held = held.extract_if(.., |held| *held == tenant).collect();
                    parts.push(Outcome { again: vec![pending], held });
                }
            }
        }
        (parts, held)
    }
}

impl Intake {
    /// Runs until the queue is closed and everything in it is answered.
    pub(crate) async fn run(self, mut queue: mpsc::Receiver<Vec<Pending>>) {
        let this = Arc::new(self);
        let mut under_way: JoinSet<Outcome> = JoinSet::new();
        let mut lines = Lines::default();
        let room = Room {
            events: this.options.accept_batch,
            deliveries: this.options.accept_deliveries,
            bytes: BATCH_BYTES_MAX,
        };
        // Those that are planned again are not committed yet, and do not count.
        let (mut replanning, mut open) = (JoinSet::new(), true);
        let mut waited = Duration::ZERO;
        while open || !lines.is_empty() || !under_way.is_empty() || !replanning.is_empty() {
            if lines.is_ready() && under_way.len() < this.options.accept_pipeline.max(1) {
                let group = lines.cut(room);
                under_way.spawn(Arc::clone(&this).commit(group, waited));
                continue;
            }
            tokio::select! {
                biased;
                Some(outcome) = under_way.join_next() => match outcome {
                    Ok(outcome) => {
                        let (stale, free) = outcome.by_tenant();
                        lines.release(&free);
                        for part in stale {
                            replanning.spawn(Arc::clone(&this).replan(part));
                        }
                    }
                    Err(e) => {
                        error!(error = %e, "an accept crashed; this is a defect");
                        lines.release_all();
                    }
                },
                Some(outcome) = replanning.join_next() => match outcome {
                    Ok(Outcome { again, held }) => {
                        lines.put_back(again);
                        lines.release(&held);
                    }
                    Err(e) => {
                        error!(error = %e, "matching crashed; this is a defect");
                        lines.release_all();
                    }
                },
                more = queue.recv(), if open => match more {
                    Some(group) => {
                        group.into_iter().for_each(|pending| lines.push(pending));
                        // Whoever is about to publish shares the commit: the first of many does not begin one alone. On an
                        // idle machine there is nobody, and it takes a few microseconds.
                        let began = Instant::now();
                        tokio::task::yield_now().await;
                        waited = began.elapsed();
                        while let Ok(group) = queue.try_recv() {
                            group.into_iter().for_each(|pending| lines.push(pending));
                        }
                    }
                    None => open = false,
                },
            }
        }
    }

    /// Matches events again whose plans were stale. What is wrong with them now is really wrong.
    async fn replan(self: Arc<Self>, outcome: Outcome) -> Outcome {
        let mut again = Vec::with_capacity(outcome.again.len());
        let mut slice = Slice::default();
        for mut pending in outcome.again {
            match self.matcher.plan(&pending.event, &mut slice).await {
                Ok(plan) => {
                    pending.plan = Some(plan);
                    again.push(pending);
                }
                Err(e) => {
                    refused(&e);
                    drop(pending.reply.send(Err(e)));
                }
            }
        }
        Outcome { again, held: outcome.held }
    }

    /// Commits a group; `waited` says how long intake had waited for a processor before it.
    async fn commit(self: Arc<Self>, group: Group, waited: Duration) -> Outcome {
        let Group { mut events, held } = group;
        let mut batch: Vec<NewEvent> =
            events.iter_mut().map(|pending| self.new_event(pending)).collect();
        keep_together(&events, &mut batch);
        ::metrics::histogram!(metrics::ACCEPT_BATCH).record(batch.len() as f64);
        if crate::plant::active("ack-before-commit") {
            for (pending, new) in events.drain(..).zip(&batch) {
                let (id, deliveries) = (new.event.id, new.deliveries.len());
                let accepted_at = pending.event.accepted_at;
                let told = Published { id, accepted_at, deliveries, duplicate: false };
                drop(pending.reply.send(Ok(told)));
            }
        }
        let again = match self.store.accept(batch.clone()).await {
            Ok(answers) => self.settle(events, batch, answers, waited).await,
            Err(e) => {
                self.fail(events, &e);
                Vec::new()
            }
        };
        Outcome { again, held }
    }

    fn new_event(&self, pending: &mut Pending) -> NewEvent {
        let Some(plan) = pending.plan.take() else { return self.unplannable(pending) };
        let now = pending.event.accepted_at;
        let due_at = match crate::plant::active("deliver-at-early") {
            true => now,
            false => pending.event.begins_at(),
        };
        let ids = self.chance.delivery_ids(now, plan.matches.len());
        let new = |(found, id): (crate::matching::Match, _)| NewDelivery {
            id,
            subscription: found.subscription,
            lane: found.lane,
            due_at,
        };
        NewEvent {
            event: Arc::clone(&pending.event),
            idempotency: pending.idempotency.clone(),
            catalog: plan.version,
            deliveries: plan.matches.into_iter().zip(ids).map(new).collect(),
        }
    }

    /// An event that cannot be planned is sent with an impossible version: the store checks its
    /// idempotency key first, and otherwise answers that the plan is stale, so that it is planned
    /// again on a fresh catalog before it is refused.
    fn unplannable(&self, pending: &Pending) -> NewEvent {
        NewEvent {
            event: Arc::clone(&pending.event),
            idempotency: pending.idempotency.clone(),
            catalog: UNPLANNED,
            deliveries: Vec::new(),
        }
    }

    async fn settle(
        &self,
        planned: Vec<Pending>,
        batch: Vec<NewEvent>,
        answers: Vec<Accepted>,
        waited: Duration,
    ) -> Vec<Pending> {
        let (mut again, works) = self.answer(planned, batch, answers);
        if !works.is_empty() {
            for work in &works {
                self.wakes.add(work.delivery.shard());
            }
            drop(self.scheduler.send(Input::Work { works, waited }).await);
        }
        // Without a fresh catalog nobody can say whether a topic is really unknown.
        if !again.is_empty() && !self.refresh().await {
            for pending in again.drain(..) {
                let context = "reading the catalog";
                let e = posthorn_store::Error::Unavailable { context, source: None };
                drop(pending.reply.send(Err(Error::Store(e))));
            }
        }
        again
    }

    /// Tells publishers what became of their events; returns what must be planned again, and what is due now.
    fn answer(
        &self,
        planned: Vec<Pending>,
        batch: Vec<NewEvent>,
        answers: Vec<Accepted>,
    ) -> (Vec<Pending>, Vec<Work>) {
        let mut again = Vec::new();
        let mut works = Vec::new();
        for part in planned.chunk_by(|a, b| a.event.tenant == b.event.tenant) {
            let youngest = part.iter().map(|pending| pending.ticket.since).max();
            if let (Some(youngest), Some(first)) = (youngest, part.first()) {
                self.admission.committed(&first.ticket.gauge, part.len(), youngest);
            }
        }
        self.hints.committed();
        let mut tally = Tally::new(&self.admission);
        let mut figures = self.counting.intake(self.clock.now());
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
                    let tenant = new.event.tenant;
                    figures.published(tenant, &new.event.topic);
                    let ends_here =
                        |new: &&NewDelivery| self.admission.counts(Shard::of(new.subscription));
                    let counted = new.deliveries.iter().filter(ends_here).count();
                    tally.add(new.event.tenant, i64::try_from(counted).unwrap_or(i64::MAX));
                    for (delivery, placed) in new.deliveries.into_iter().zip(placed) {
                        figures.wanted(tenant, delivery.subscription);
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
                Accepted::Stale => Err(Error::Busy(
                    "the catalog is being changed too often; try \
                                                    again",
                )),
            };
            if let Err(e) = &answer {
                refused(e);
            }
            drop(pending.reply.send(answer));
        }
        (again, works)
    }

    /// Loads what changed in the catalog; false when the store could not answer.
    async fn refresh(&self) -> bool {
        match self.store.catalog_since(self.catalog.version()).await {
            Ok(delta) => {
                scheduler::tell(&self.scheduler, self.catalog.apply(delta)).await;
                true
            }
            Err(e) => {
                tracing::warn!(error = %chain(&e), "the catalog could not be read");
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
        // A store that is gone refuses every publish; one line a second says as much.
        if let Some(before) = self.unstored.count(planned.len()) {
            tracing::warn!(error = %text, events = planned.len(), more_since_last = before,
                "events could not be stored");
        }
        let context = "storing the event";
        for pending in planned {
            // Errors cannot be copied, but each publisher is told what to do about it.
            let e = match e {
                // What failed for good may have done so after the commit, which a restart then finds.
                posthorn_store::Error::Unknown { .. } | posthorn_store::Error::Fatal { .. } => {
                    posthorn_store::Error::Unknown { context, source: None }
                }
                posthorn_store::Error::DiskFull { .. } => {
                    posthorn_store::Error::DiskFull { source: None }
                }
                _ => posthorn_store::Error::Unavailable { context, source: None },
            };
            drop(pending.reply.send(Err(Error::Store(e))));
        }
    }
}

/// The store judges each event by the version its plan was made on. Events of one call that were matched on
/// different versions are all given the oldest, and where one could not be matched none counts as matched:
/// they are stale together and planned again together, so that none is stored before one that was published
/// before it.
fn keep_together(events: &[Pending], batch: &mut [NewEvent]) {
    let mut start = 0;
    for part in events.chunk_by(|a, b| a.event.tenant == b.event.tenant && a.call == b.call) {
        let part = &mut batch[start..start + part.len()];
        start += part.len();
        let versions = part.iter().map(|new| new.catalog);
        let unplanned = versions.clone().any(|at| at == UNPLANNED);
        let together = if unplanned { Some(UNPLANNED) } else { versions.min() };
        if let Some(together) = together {
            part.iter_mut().for_each(|new| new.catalog = together);
        }
    }
}

/// Why a publish is refused, in a word.
pub(crate) fn reason(e: &Error) -> &'static str {
    match e {
        Error::UnknownTopic(_) => "unknown_topic",
        Error::KeyReused { .. } => "key_reused",
        Error::NotFound(_) => "unknown_tenant",
        Error::MatchingTooCostly { .. } => "matching_too_costly",
        Error::FanOut { .. } => "fan_out",
        Error::TopicReserved(_) => "topic_reserved",
        Error::UnknownType { .. } => "unknown_type",
        Error::Payload { .. } => "payload",
        Error::TenantDeleted => "tenant_deleted",
        _ => "other",
    }
}

fn refused(e: &Error) {
    ::metrics::counter!(metrics::PUBLISH_REFUSED, "reason" => reason(e)).increment(1);
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
            budget: posthorn_domain::Budget::Fresh,
            budget_began: event.begins_at(),
            revival: 0,
            created_at: event.accepted_at,
            ended_at: None,
            last_outcome: None,
        },
        event: Arc::clone(event),
    }
}
