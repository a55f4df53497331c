//! The model: a store in memory, as plain as possible, that defines what the others must do.
//!
//! Tests and the simulator run on it. It keeps everything in ordered maps under one lock, so that a
//! run is deterministic, and does each call at once, so that a wrapper can add latency, errors and
//! crashes around it. It is not a product: nothing survives the process.

mod audit;
mod away;
mod catalog;
mod checkers;
mod deliveries;
mod expunging;
mod following;
mod jobs;
mod kept_answers;
mod leases;
mod pages;
pub mod plant;
mod pruning;
mod push;
mod questions;
mod rollups;
mod sessions;
mod telling;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Attempt, AuditEntry, AuditId, CatalogVersion, Clock, Delivery, DeliveryId, DeliveryState,
    Event, EventId, Job, JobId, JobState, KeyId, NodeId, Redrive, RedriveId, RedriveState, Session,
    SessionId, Shard, SubscriptionId, TenantId, Timestamp,
};
use tokio::sync::Notify;

use catalog::Catalog;
use deliveries::Row;
use leases::Leases;
use pages::{listed, page};
use posthorn_store::{
    Accepted, Advanced, Along, AnswerClaim, AnswerClaimed, AnswerKey, AttemptFilter, AttemptLine,
    AttemptMade, AuditFilter, Bite, Bitten, CatalogChange, CatalogDelta, Claim, Counts,
    DeliveryFilter, DueSubscription, EndSessions, Ending, Entered, EventFilter, EventLine,
    EventTally, FailingSubscription, FollowAsk, Followed, Grant, Heartbeat, KeptAnswer, Listing,
    Membership, Moved, NewEvent, Page, PendingAsk, Place, Prune, Pruned, Record, Recorded,
    RedrivePage, Refusal, Result, Rollups, Series, SeriesAsk, SessionFilter, StateKind, Store,
    Sums, SumsAsk, Swept, TendRollups, Work,
};

/// The store in memory. Clones share the contents; each clone listens for hints by itself.
#[derive(Clone)]
pub struct ModelStore {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
}

struct Shared {
    state: Mutex<State>,
    push: Mutex<push::State>,
    clock: Arc<dyn Clock>,
    listeners: Mutex<Vec<Arc<Inbox>>>,
    before_bites: Mutex<Option<BeforeBite>>,
    reach: away::Reach,
}

/// What happens before a bite of a job is done. A test may note it, have it wait, or have it fail.
pub type BeforeBite =
    Arc<dyn Fn(&Bite) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// Hints that other handles sent to this one.
#[derive(Default)]
struct Inbox {
    shards: Mutex<Option<BTreeSet<Shard>>>,
    wake: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    catalog: Catalog,
    leases: Leases,
    events: BTreeMap<EventId, Arc<Event>>,
    keys: BTreeMap<(TenantId, String), StoredKey>,
    rows: BTreeMap<DeliveryId, Row>,
    by_subscription: BTreeMap<SubscriptionId, BTreeSet<DeliveryId>>,
    by_event: BTreeMap<EventId, Vec<DeliveryId>>,
    /// Events that somebody wanted, also when the deliveries are forgotten.
    wanted: BTreeSet<EventId>,
    /// Events in the order in which they were stored.
    taken_in: Vec<EventId>,
    attempts: BTreeMap<DeliveryId, Vec<Attempt>>,
    /// Attempts in the order in which they were recorded.
    made: BTreeMap<u64, (DeliveryId, u32, Timestamp)>,
    redrives: BTreeMap<RedriveId, StoredRedrive>,
    jobs: BTreeMap<JobId, (Job, Option<Place>)>,
    rollups: rollups::Kept,
    audit: BTreeMap<AuditId, AuditEntry>,
    sessions: BTreeMap<SessionId, Session>,
    pruned_before: Option<Timestamp>,
    answers: BTreeMap<AnswerKey, kept_answers::Claimed>,
    seq: u64,
}

struct StoredKey {
    fingerprint: [u8; 32],
    event: EventId,
    accepted_at: Timestamp,
}

struct StoredRedrive {
    redrive: Redrive,
    cursor: Option<DeliveryId>,
}

impl ModelStore {
    /// An empty store whose leases run by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let inbox = Arc::new(Inbox::default());
        let shared = Shared {
            state: Mutex::new(State::default()),
            push: Mutex::default(),
            clock,
            listeners: Mutex::new(vec![Arc::clone(&inbox)]),
            before_bites: Mutex::default(),
            reach: away::Reach::default(),
        };
        Self { shared: Arc::new(shared), inbox }
    }
}

impl State {
    /// A delivery as readers see it: that of a deleted subscription is cancelled already.
    fn seen(&self, row: &Row) -> Delivery {
        self.stored(row).seen()
    }

    fn work(&self, id: DeliveryId) -> Option<Work> {
        let delivery = self.rows.get(&id)?.delivery.clone();
        let event = Arc::clone(self.events.get(&delivery.event)?);
        Some(Work { delivery, event })
    }

    fn has_dead_letters(&self, event: EventId) -> bool {
        let ids = self.by_event.get(&event).into_iter().flatten();
        ids.filter_map(|id| self.rows.get(id))
            .any(|row| StateKind::of(row.delivery.state) == StateKind::Dead)
    }

    fn keep_event(&mut self, event: &Arc<Event>) {
        self.events.insert(event.id, Arc::clone(event));
        self.taken_in.push(event.id);
    }

    /// Keeps an attempt at the end of the history.
    fn keep_attempt(&mut self, attempt: Attempt) {
        let next = self.made.last_key_value().map_or(1, |(no, _)| no + 1);
        self.made.insert(next, (attempt.delivery, attempt.number, attempt.started_at));
        self.attempts.entry(attempt.delivery).or_default().push(attempt);
    }

    fn unfinished(&self, row: &Row) -> bool {
        !row.delivery.state.is_terminal()
            && self.catalog.deleted_at(row.delivery.subscription).is_none()
    }

    fn accept_one(&mut self, new: NewEvent) -> Accepted {
        let tenant = new.event.tenant;
        if let Some(idempotency) = &new.idempotency
            && let Some(stored) = self.keys.get(&(tenant, idempotency.key.as_str().to_owned()))
        {
            return if stored.fingerprint == idempotency.fingerprint {
                Accepted::Duplicate { event: stored.event }
            } else {
                Accepted::Conflict { event: stored.event }
            };
        }
        let takes_stale = plant::active("stale-catalog") && new.catalog != CatalogVersion(u64::MAX);
        if self.catalog.tenant_version(tenant) != Some(new.catalog) && !takes_stale {
            return Accepted::Stale;
        }
        if plant::active("key-outside-transaction") {
            // Nobody writes it in this transaction; the first reader would have.
            self.keep_event(&new.event);
            let placed = new.deliveries.into_iter().map(|d| self.place(&new.event, d)).collect();
            return Accepted::Stored(placed);
        }
        if let Some(idempotency) = new.idempotency {
            let stored = StoredKey {
                fingerprint: idempotency.fingerprint,
                event: new.event.id,
                accepted_at: new.event.accepted_at,
            };
            self.keys.insert((tenant, idempotency.key.as_str().to_owned()), stored);
        }
        self.keep_event(&new.event);
        let placed = new.deliveries.into_iter().map(|d| self.place(&new.event, d)).collect();
        Accepted::Stored(placed)
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn change_catalog_with(
        &self,
        change: CatalogChange,
        along: Along,
    ) -> Result<CatalogVersion> {
        self.shared.state.lock().change(&change, along)
    }

    async fn catalog_since(&self, since: CatalogVersion) -> Result<CatalogDelta> {
        Ok(self.shared.state.lock().catalog.since(since))
    }

    async fn touch_keys(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
        self.shared.state.lock().catalog.touch_keys(uses);
        Ok(())
    }

    async fn keys_used(&self) -> Result<Vec<(KeyId, Timestamp)>> {
        Ok(self.shared.state.lock().catalog.keys_used())
    }

    async fn accept(&self, batch: Vec<NewEvent>) -> Result<Vec<Accepted>> {
        self.reach()?;
        let answers = {
            let mut state = self.shared.state.lock();
            batch.into_iter().map(|new| state.accept_one(new)).collect()
        };
        self.come_late().await;
        Ok(answers)
    }

    async fn due_subscriptions(&self, shards: &[Shard]) -> Result<Vec<DueSubscription>> {
        self.reach()?;
        let state = self.shared.state.lock();
        let due = state.by_subscription.iter().filter_map(|(subscription, ids)| {
            if !shards.contains(&Shard::of(*subscription)) {
                return None;
            }
            let due_at = ids
                .iter()
                .filter_map(|id| state.rows.get(id))
                .filter(|row| state.unfinished(row) && !row.delivery.is_parked())
                .map(|row| row.delivery.due_at)
                .min()?;
            Some(DueSubscription { subscription: *subscription, due_at })
        });
        Ok(due.collect())
    }

    async fn pending(&self, asks: Vec<PendingAsk>, max_bytes: usize) -> Result<Vec<Vec<Work>>> {
        self.reach()?;
        let state = self.shared.state.lock();
        let mut bytes = 0usize;
        let mut replies = Vec::with_capacity(asks.len());
        for ask in asks {
            let mut found: Vec<&Row> = state
                .by_subscription
                .get(&ask.subscription)
                .into_iter()
                .flatten()
                .filter_map(|id| state.rows.get(id))
                .filter(|row| state.unfinished(row) && !row.delivery.is_parked())
                .filter(|row| (ask.from..=ask.until).contains(&row.delivery.due_at))
                .collect();
            found.sort_by_key(|row| (row.delivery.due_at, row.delivery.seq));
            let mut works = Vec::new();
            for row in found.into_iter().take(ask.limit) {
                let first = works.is_empty() && replies.is_empty();
                if bytes > max_bytes && !first {
                    break;
                }
                if let Some(work) = state.work(row.delivery.id) {
                    bytes += work.event.payload.len();
                    works.push(work);
                }
            }
            replies.push(works);
        }
        Ok(replies)
    }

    async fn failing(&self, shards: &[Shard]) -> Result<Vec<FailingSubscription>> {
        let state = self.shared.state.lock();
        let rows = state.catalog.failing.iter();
        let rows = rows.filter(|(id, _)| shards.contains(&Shard::of(**id)));
        Ok(rows
            .map(|(id, streak)| FailingSubscription { subscription: *id, streak: *streak })
            .collect())
    }

    async fn claim(&self, batch: Vec<Claim>) -> Result<Vec<bool>> {
        self.reach()?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        Ok(batch.into_iter().map(|claim| state.claim(&claim, now)).collect())
    }

    async fn record_with(
        &self,
        batch: Vec<Record>,
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>> {
        self.reach()?;
        let mut state = self.shared.state.lock();
        if let Some(rollups) = rollups {
            state.rollups.write(&rollups);
        }
        Ok(batch.into_iter().map(|record| state.record(record)).collect())
    }

    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
        along: Along,
    ) -> Result<Moved> {
        let mut state = self.shared.state.lock();
        state.check(&along)?;
        let moved = state.by_hand(wish, tenant, delivery, at)?;
        state.go_along(along);
        Ok(moved)
    }

    async fn expunge_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
        along: Along,
    ) -> Result<Event> {
        let mut state = self.shared.state.lock();
        state.check(&along)?;
        if state.expunge(tenant, event, responses, at)? {
            state.go_along(along);
        }
        let left = state.events.get(&event).ok_or(Refusal::NotFound)?;
        Ok(Event::clone(left))
    }

    async fn expunge_response_with(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
        along: Along,
    ) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.check(&along)?;
        if state.expunge_response(tenant, delivery, number, at)? {
            state.go_along(along);
        }
        Ok(())
    }

    async fn create_redrive_with(&self, mut redrive: Redrive, along: Along) -> Result<Redrive> {
        let mut state = self.shared.state.lock();
        if !state.catalog.is_open(redrive.tenant) {
            return Err(Refusal::NotFound.into());
        }
        if state.redrives.contains_key(&redrive.id) {
            return Err(Refusal::AlreadyExists.into());
        }
        state.check(&along)?;
        redrive.total = state.redrivable(&redrive, None).count() as u64;
        let stored = StoredRedrive { redrive: redrive.clone(), cursor: None };
        state.redrives.insert(redrive.id, stored);
        state.go_along(along);
        Ok(redrive)
    }

    async fn redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Option<Redrive>> {
        let state = self.shared.state.lock();
        let found = state.redrives.get(&id).map(|stored| stored.redrive.clone());
        Ok(found.filter(|redrive| redrive.tenant == tenant))
    }

    async fn redrives(&self, tenant: TenantId, wanted: RedrivePage) -> Result<Page<Redrive>> {
        let state = self.shared.state.lock();
        let all = state.redrives.values().rev().map(|stored| &stored.redrive);
        let older = |id| wanted.before.is_none_or(|before| id < before);
        let found = all.filter(|r| r.tenant == tenant && older(r.id)).cloned();
        Ok(page(found, wanted.limit))
    }

    async fn running_redrives(&self, limit: usize) -> Result<Vec<Redrive>> {
        let state = self.shared.state.lock();
        let all = state.redrives.values().map(|stored| &stored.redrive);
        let running = all.filter(|redrive| redrive.state == RedriveState::Running);
        Ok(running.take(limit).cloned().collect())
    }

    async fn cancel_redrive_with(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Redrive> {
        let mut state = self.shared.state.lock();
        let stored = state.redrives.get(&id).filter(|s| s.redrive.tenant == tenant);
        let mut redrive = stored.ok_or(Refusal::NotFound)?.redrive.clone();
        if redrive.state == RedriveState::Running {
            state.check(&along)?;
            state.tell_end(ending, redrive.total, redrive.moved)?;
            state.go_along(along);
            redrive.state = RedriveState::Cancelled;
            redrive.finished_at = Some(at);
            if let Some(stored) = state.redrives.get_mut(&id) {
                stored.redrive = redrive.clone();
            }
        }
        Ok(redrive)
    }

    async fn advance_redrive(
        &self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Advanced> {
        Ok(self.shared.state.lock().advance(id, limit, at, ending)?)
    }

    async fn create_job_with(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        along: Along,
    ) -> Result<Option<CatalogVersion>> {
        let mut state = self.shared.state.lock();
        if !state.catalog.is_open(job.tenant) {
            return Err(Refusal::NotFound.into());
        }
        if state.jobs.contains_key(&job.id) {
            return Err(Refusal::AlreadyExists.into());
        }
        let version = match change {
            Some(change) => Some(state.change(&change, along)?),
            None => {
                state.check(&along)?;
                state.go_along(along);
                None
            }
        };
        state.jobs.insert(job.id, (job, None));
        Ok(version)
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<Job>> {
        let state = self.shared.state.lock();
        Ok(state.jobs.get(&id).map(|(job, _)| job.clone()).filter(|job| job.tenant == tenant))
    }

    async fn jobs(&self, tenant: TenantId, listing: Listing) -> Result<Page<Job>> {
        let state = self.shared.state.lock();
        let own = state.jobs.values().filter(|(job, _)| job.tenant == tenant);
        let placed = own.map(|(job, _)| (u128::from_be_bytes(*job.id.as_bytes()), job.clone()));
        Ok(listed(placed.collect(), &listing))
    }

    async fn running_jobs(&self, limit: usize) -> Result<Vec<(Job, Option<Place>)>> {
        let state = self.shared.state.lock();
        let running = state.jobs.values().filter(|(job, _)| job.state == JobState::Running);
        let mut of_tenant: BTreeMap<TenantId, usize> = BTreeMap::new();
        let mut turns = BTreeMap::new();
        for (job, place) in running {
            let turn = of_tenant.entry(job.tenant).or_default();
            *turn += 1;
            turns.insert((*turn, job.id), (job.clone(), *place));
        }
        Ok(turns.into_values().take(limit).collect())
    }

    async fn cancel_job_with(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Job> {
        let mut state = self.shared.state.lock();
        let stored = state.jobs.get(&id).filter(|(job, _)| job.tenant == tenant);
        let mut job = stored.ok_or(Refusal::NotFound)?.0.clone();
        if job.state == JobState::Running {
            state.check(&along)?;
            state.tell_end(ending, job.seen, job.done)?;
            state.go_along(along);
            job.state = JobState::Cancelled;
            job.finished_at = Some(at);
            if let Some((stored, _)) = state.jobs.get_mut(&id) {
                *stored = job.clone();
            }
        }
        Ok(job)
    }

    async fn advance_job(&self, bite: Bite) -> Result<Bitten> {
        let before = self.shared.before_bites.lock().clone();
        if let Some(before) = before {
            before(&bite).await?;
        }
        Ok(self.shared.state.lock().bite(&bite)?)
    }

    async fn audit(&self, filter: AuditFilter, listing: Listing) -> Result<Page<AuditEntry>> {
        Ok(self.shared.state.lock().lines(&filter, &listing))
    }

    async fn note(&self, along: Along) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.check(&along)?;
        state.go_along(along);
        Ok(())
    }

    async fn create_session(&self, session: Session, along: Along) -> Result<()> {
        self.shared.state.lock().create_session(session, along)
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        Ok(self.shared.state.lock().sessions.get(&id).cloned())
    }

    async fn redeem_session(
        &self,
        link: SessionId,
        session: Session,
        along: Along,
    ) -> Result<bool> {
        self.shared.state.lock().redeem_session(link, session, along)
    }

    async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<Session>> {
        Ok(self.shared.state.lock().list_sessions(&which, &listing))
    }

    async fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> Result<u64> {
        Ok(self.shared.state.lock().count_sessions(tenant, at))
    }

    async fn end_sessions(&self, which: EndSessions, along: Along) -> Result<u64> {
        self.shared.state.lock().end_sessions(&which, along)
    }

    async fn prune_sessions(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.shared.state.lock().prune_sessions(expired_before, limit))
    }

    async fn claim_answer(&self, claim: AnswerClaim) -> Result<AnswerClaimed> {
        let now = self.shared.clock.now();
        Ok(self.shared.state.lock().claim_answer(&claim, now))
    }

    async fn keep_answer(&self, key: AnswerKey, answer: KeptAnswer) -> Result<bool> {
        Ok(self.shared.state.lock().keep_answer(&key, answer))
    }

    async fn release_answer(&self, key: AnswerKey, holder: u128) -> Result<()> {
        self.shared.state.lock().release_answer(&key, holder);
        Ok(())
    }

    async fn prune_answers(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.shared.state.lock().prune_answers(expired_before, limit))
    }

    async fn sweep_cancelled(&self, limit: usize, at: Timestamp) -> Result<Swept> {
        Ok(self.shared.state.lock().sweep(limit, at))
    }

    async fn enter_lanes(&self, limit: usize, at: Timestamp) -> Result<Entered> {
        Ok(self.shared.state.lock().enter_lanes(limit, at))
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned> {
        Ok(self.shared.state.lock().prune(prune))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Membership> {
        self.reach()?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let catalog = state.catalog.version();
        Ok(self.looked(state.leases.heartbeat(beat, now, catalog)))
    }

    async fn acquire_shards(
        &self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
    ) -> Result<Vec<Grant>> {
        self.reach()?;
        let now = self.shared.clock.now();
        Ok(self.shared.state.lock().leases.acquire(node, shards, ttl, now))
    }

    async fn release_shards(&self, node: NodeId, grants: &[Grant]) -> Result<()> {
        self.shared.state.lock().leases.release(node, grants);
        Ok(())
    }

    async fn depart(&self, node: NodeId) -> Result<()> {
        self.farewell(node).await;
        Ok(())
    }

    async fn notify(&self, shards: &[Shard]) -> Result<()> {
        for inbox in self.shared.listeners.lock().iter() {
            if !Arc::ptr_eq(inbox, &self.inbox) {
                inbox.shards.lock().get_or_insert_default().extend(shards);
                inbox.wake.notify_one();
            }
        }
        Ok(())
    }

    async fn notified(&self) -> Vec<Shard> {
        loop {
            if let Some(shards) = self.inbox.shards.lock().take() {
                return shards.into_iter().collect();
            }
            self.inbox.wake.notified().await;
        }
    }

    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>> {
        let state = self.shared.state.lock();
        let found = state.events.get(&id).filter(|event| event.tenant == tenant);
        Ok(found.map(|event| Event::clone(event)))
    }

    async fn events_by_id(&self, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>> {
        let state = self.shared.state.lock();
        let found = ids.iter().filter_map(|id| state.events.get(id));
        let own = found.filter(|event| event.tenant == tenant);
        Ok(own.map(|event| Event::clone(event)).collect())
    }

    async fn delivery_states(
        &self,
        tenant: TenantId,
        pairs: Vec<(EventId, SubscriptionId)>,
    ) -> Result<Vec<Option<DeliveryState>>> {
        let state = self.shared.state.lock();
        let found = |(event, to): &(EventId, SubscriptionId)| {
            let own = state.events.get(event).filter(|event| event.tenant == tenant);
            own.and_then(|_| state.between(*event, *to)).map(|(_, state)| state)
        };
        Ok(pairs.iter().map(found).collect())
    }

    async fn fan_outs(&self, tenant: TenantId, events: Vec<EventId>) -> Result<Vec<usize>> {
        let state = self.shared.state.lock();
        let count = |id: &EventId| {
            let own = state.events.get(id).filter(|event| event.tenant == tenant);
            own.and_then(|_| state.by_event.get(id)).map_or(0, Vec::len)
        };
        Ok(events.iter().map(count).collect())
    }

    async fn event_tallies(
        &self,
        tenant: TenantId,
        events: Vec<EventId>,
        limit: usize,
    ) -> Result<Vec<EventTally>> {
        let state = self.shared.state.lock();
        Ok(events.iter().map(|id| state.tally(tenant, *id, limit)).collect())
    }

    async fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<Event>> {
        Ok(self.shared.state.lock().list_events(tenant, &filter, &listing))
    }

    async fn event_lines(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<EventLine>> {
        Ok(self.events(tenant, filter, listing).await?.map(EventLine::of))
    }

    async fn deliveries_by_id(
        &self,
        tenant: TenantId,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<Delivery>> {
        let state = self.shared.state.lock();
        let found = ids.iter().filter_map(|id| state.rows.get(id));
        let own = found.filter(|row| row.delivery.tenant == tenant);
        Ok(own.map(|row| state.seen(row)).collect())
    }

    async fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Delivery>> {
        let state = self.shared.state.lock();
        let found = state.rows.get(&id).filter(|row| row.delivery.tenant == tenant);
        Ok(found.map(|row| state.seen(row)))
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>> {
        let state = self.shared.state.lock();
        let seen = state.rows.values().map(|row| state.seen(row));
        let found = seen.filter(|delivery| delivery.tenant == tenant && filter.wants(delivery));
        Ok(listed(found.map(|delivery| (delivery.seq.into(), delivery)).collect(), &listing))
    }

    async fn attempts_made(
        &self,
        tenant: TenantId,
        filter: AttemptFilter,
        listing: Listing,
    ) -> Result<Page<AttemptLine>> {
        Ok(self.shared.state.lock().list_attempts(tenant, &filter, &listing))
    }

    async fn events_after(&self, ask: FollowAsk) -> Result<Followed<EventLine>> {
        Ok(self.shared.state.lock().events_after(&ask))
    }

    async fn attempts_after(&self, ask: FollowAsk) -> Result<Followed<AttemptMade>> {
        Ok(self.shared.state.lock().attempts_after(&ask))
    }

    async fn attempts(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Vec<Attempt>> {
        let state = self.shared.state.lock();
        let own = state.rows.get(&delivery).is_some_and(|row| row.delivery.tenant == tenant);
        Ok(if own { state.attempts.get(&delivery).cloned().unwrap_or_default() } else { vec![] })
    }

    async fn counts(&self, tenant: Option<TenantId>) -> Result<Counts> {
        Ok(self.shared.state.lock().counts(tenant))
    }

    async fn pending_by_tenant(&self) -> Result<Vec<(TenantId, u64)>> {
        let state = self.shared.state.lock();
        let mut counts = BTreeMap::new();
        for row in state.rows.values().filter(|row| !row.delivery.state.is_terminal()) {
            *counts.entry(row.delivery.tenant).or_insert(0) += 1;
        }
        Ok(counts.into_iter().collect())
    }

    async fn pending_by_subscription(&self) -> Result<Vec<(TenantId, SubscriptionId, u64)>> {
        let state = self.shared.state.lock();
        let mut counts = BTreeMap::new();
        for row in state.rows.values().filter(|row| state.unfinished(row)) {
            let whose = (row.delivery.tenant, row.delivery.subscription);
            *counts.entry(whose).or_insert(0) += 1;
        }
        Ok(counts.into_iter().map(|((tenant, id), count)| (tenant, id, count)).collect())
    }

    async fn pruned_before(&self) -> Result<Option<Timestamp>> {
        Ok(self.shared.state.lock().pruned_before)
    }

    async fn tend_rollups(&self, tend: TendRollups) -> Result<bool> {
        Ok(self.shared.state.lock().rollups.tend(&tend))
    }

    async fn series(&self, ask: SeriesAsk) -> Result<Series> {
        Ok(self.shared.state.lock().rollups.series(&ask))
    }

    async fn sums(&self, ask: SumsAsk) -> Result<Sums> {
        Ok(self.shared.state.lock().rollups.sums(&ask))
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }
}
