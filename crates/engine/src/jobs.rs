//! Jobs: events of the past, delivered to whom they are wanted for, or expunged, at a bounded pace.
//!
//! # Theory of operation
//! A job is a row in the store. Whoever is on duty reads the next part of the history for each job that runs
//! ([`crate::job_rounds`]), decides what of it is wanted, and has the store do that in one transaction together with the job's progress
//! ([`Store::advance_job`]). The store decides again whether a delivery is there already, so that nothing is made
//! twice, whoever was faster, and whatever was killed in between.
//!
//! Those of a lane come in the order of their events, behind whatever is in the lane already: an event of the past
//! must not overtake one of the present.
//!
//! # What it must not know
//! Which jobs there should be, whose turn it is, and who is on duty.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use posthorn_domain::filter::{Candidate, Matching};
use posthorn_domain::{
    AuditAction, Clock, Delivery, DeliveryState, Event, EventId, Job, JobId, JobState, JobWork,
    ReplayStatus, Replayed, Selection, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    Bite, DeliveryFilter, Ending, Error as StoreError, EventFilter, Expunges, Listing, Order, Page,
    Period, Place, Redelivery, Refusal, Result as StoreResult, StateKind, Store,
};

use crate::audit::{created, job_detail};
use crate::catalog::{Catalog, SubscriptionView};
use crate::chance::Chance;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::job_rounds::Allowance;
use crate::matching;
use crate::quotas::Quotas;
use crate::redriver::Redriver;
use crate::told::{Fact, REPLANS_MAX, Teller};

/// Events that one bite looks at.
pub(crate) const BITE: usize = 200;
/// The fastest a job may be.
pub const JOB_PER_SECOND_MAX: u32 = 5_000;
/// Events that a count looks at before it gives up.
const COUNT_MAX: usize = 100_000;
/// How much later than the subscription an event may seem to be accepted that came before it: clocks of nodes differ.
const CLOCKS_APART: posthorn_domain::Span = posthorn_domain::Span::from_secs(60);

/// What a go needs.
#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) quotas: Arc<Quotas>,
    /// Tells nodes what is due because of it.
    pub(crate) redriver: Redriver,
    pub(crate) teller: Arc<Teller>,
}

/// What a bite came to, when the job goes on.
pub(crate) struct Step {
    /// Where it stands now.
    pub(crate) place: Option<Place>,
    /// Deliveries that were wanted.
    pub(crate) wanted: usize,
}

/// What one part of the history leads to.
#[derive(Default)]
pub(crate) struct Prepared {
    deeds: Vec<Redelivery>,
    pub(crate) expunges: Option<Expunges>,
    /// About how many rows of a tenant that is being deleted go.
    removes: Option<usize>,
    pub(crate) seen: usize,
    pub(crate) last: Option<Place>,
    pub(crate) more: bool,
}

impl Prepared {
    /// How much it changes at most.
    fn wanted(&self) -> usize {
        let expunged = self.expunges.as_ref().map_or(0, |expunges| expunges.events.len());
        self.deeds.len() + expunged + self.removes.unwrap_or_default()
    }
}

impl Jobs {
    /// The first bite of a job, at once, so that a small one is done when its request is answered. The rest waits for
    /// its turns: whoever asks for many jobs gets no more than others.
    pub(crate) async fn begin(&self, job: &Job) -> StoreResult<()> {
        self.bite(job, None, Allowance::of(job).bite()).await.map(drop)
    }

    /// Does the next part of a job: at most so many events are looked at. `None` when there is nothing more to do.
    pub(crate) async fn bite(
        &self,
        job: &Job,
        place: Option<Place>,
        limit: usize,
    ) -> StoreResult<Option<Step>> {
        let prepared = match self.prepare(job, place, limit).await? {
            Ok(prepared) => prepared,
            Err(problem) => return self.give_up(job, place, problem).await.map(|()| None),
        };
        let (cursor, wanted) = (prepared.last.or(place), prepared.wanted());
        // What is told of an end is the whole of it: then the end is a bite of its own.
        let tells = !prepared.more && self.teller.is_wanted(job.tenant);
        if tells && prepared.seen == 0 {
            return self.end(job, place, JobState::Done, None).await.map(|()| None);
        }
        let bite = Bite {
            job: job.id,
            expected: place,
            cursor,
            seen: prepared.seen as u64,
            deeds: prepared.deeds,
            expunges: prepared.expunges,
            removes: prepared.removes,
            ends: (!prepared.more && !tells).then_some(JobState::Done),
            ending: None,
            problem: None,
            at: self.clock.now(),
        };
        let bitten = self.store.advance_job(bite).await?;
        self.redriver.tell(bitten.recall, &bitten.subscriptions).await;
        if tells && bitten.state == JobState::Running {
            return self.end(job, cursor, JobState::Done, None).await.map(|()| None);
        }
        let stands_still = wanted > 0 && bitten.done == 0 && cursor == place;
        let goes_on = bitten.state == JobState::Running && !stands_still;
        Ok(goes_on.then_some(Step { place: cursor, wanted }))
    }

    async fn give_up(
        &self,
        job: &Job,
        place: Option<Place>,
        problem: &'static str,
    ) -> StoreResult<()> {
        tracing::warn!(job = %job.id, problem, "a job cannot go on");
        self.end(job, place, JobState::Failed, Some(problem)).await
    }

    /// Ends a job, and tells so.
    async fn end(
        &self,
        job: &Job,
        place: Option<Place>,
        state: JobState,
        problem: Option<&'static str>,
    ) -> StoreResult<()> {
        for _ in 0..REPLANS_MAX {
            let at = self.clock.now();
            let Some(now) = self.store.job(job.tenant, job.id).await? else { return Ok(()) };
            let problem = problem.map(str::to_owned);
            let ended = Job { state, problem: problem.clone(), finished_at: Some(at), ..now };
            let ending = self.ending(&ended, at);
            let bite = Bite {
                job: job.id,
                expected: place,
                cursor: place,
                seen: 0,
                deeds: Vec::new(),
                expunges: None,
                removes: None,
                ends: Some(state),
                ending: ending.clone(),
                problem,
                at,
            };
            match self.store.advance_job(bite).await {
                Err(StoreError::Refused(Refusal::Stale)) => self.teller.refresh().await?,
                Ok(_) => {
                    self.teller.announce(&ending.map_or(Vec::new(), |ending| ending.told)).await;
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        // Whoever is on duty tries again.
        Ok(())
    }

    /// What is told of the end of a job, when anybody wants to know.
    pub(crate) fn ending(&self, ended: &Job, at: Timestamp) -> Option<Ending> {
        if !self.teller.is_wanted(ended.tenant) {
            return None;
        }
        let told = self.teller.plan(&Fact::job(ended, at));
        (!told.is_empty()).then_some(Ending { told, seen: ended.seen, done: ended.done })
    }

    /// What the next part of the history leads to; `Err` when the job can never go on.
    pub(crate) async fn prepare(
        &self,
        job: &Job,
        after: Option<Place>,
        limit: usize,
    ) -> StoreResult<Result<Prepared, &'static str>> {
        let listing = Listing { order: Order::OldestFirst, after, limit };
        match &job.work {
            JobWork::Deliver { event, subscription } => {
                let found = self.store.event(job.tenant, *event).await?;
                let view = self.catalog.subscription(job.tenant, *subscription);
                let (Some(event), Ok(view)) = (found, view) else {
                    return Ok(Err("the event or the subscription is gone"));
                };
                if event.expunged_at.is_some() {
                    return Ok(Err("the payload of the event was removed"));
                }
                // Done once: whoever comes after it only ends the job.
                let (deeds, seen) = match after {
                    None => (vec![self.redelivery(&event, &view, ReplayStatus::All)], 1),
                    Some(_) => (Vec::new(), 0),
                };
                Ok(Ok(Prepared { deeds, seen, last: Some(Place(0)), ..Prepared::default() }))
            }
            // Which rows is the store's affair, and when there are none left.
            JobWork::DeleteTenant => {
                Ok(Ok(Prepared { removes: Some(limit), more: true, ..Prepared::default() }))
            }
            JobWork::Expunge { events, responses } => {
                let page = self.store.events(job.tenant, filter_of(events), listing).await?;
                // What has no payload any more may still have answers.
                let wanted = |event: &&Event| event.expunged_at.is_none() || *responses;
                let ids = page.items.iter().filter(wanted).map(|event| event.id).collect();
                let expunges = Some(Expunges { events: ids, responses: *responses });
                Ok(Ok(Prepared { expunges, ..prepared(&page, Vec::new()) }))
            }
            JobWork::Replay { subscription: Some(id), events, status } => {
                let Ok(view) = self.catalog.subscription(job.tenant, *id) else {
                    return Ok(Err("the subscription was deleted"));
                };
                let page = self.store.events(job.tenant, filter_of(events), listing).await?;
                let chosen = page.items.iter().filter(|event| passes(events, event));
                let wanted = chosen.filter(|event| self.wants(&view, event, *status));
                let mut deeds: Vec<Redelivery> =
                    wanted.map(|event| self.redelivery(event, &view, *status)).collect();
                if crate::plant::active("replay-skips") {
                    deeds.pop();
                }
                Ok(Ok(prepared(&page, deeds)))
            }
            JobWork::Replay { subscription: None, events, status } => {
                let page = self.ended(job.tenant, events, *status, listing).await?;
                let found = self.chosen(job.tenant, events, &page.items).await?;
                let redelivery = |delivery: &Delivery| {
                    let event = found.get(&delivery.event)?;
                    let view = self.catalog.subscription(job.tenant, delivery.subscription);
                    Some(self.redelivery(event, &view.ok()?, *status))
                };
                let deeds = page.items.iter().filter_map(redelivery).collect();
                Ok(Ok(prepared(&page, deeds)))
            }
        }
    }

    /// Deliveries that ended as a status says.
    async fn ended(
        &self,
        tenant: TenantId,
        events: &Selection,
        status: ReplayStatus,
        listing: Listing,
    ) -> StoreResult<Page<Delivery>> {
        let state = match status {
            ReplayStatus::Delivered => StateKind::Delivered,
            _ => StateKind::Dead,
        };
        let created = Period { from: events.from, until: events.until };
        let filter = DeliveryFilter { state: Some(state), created, ..DeliveryFilter::default() };
        self.store.deliveries(tenant, filter, listing).await
    }

    /// The events of deliveries, as far as they are chosen.
    async fn chosen(
        &self,
        tenant: TenantId,
        events: &Selection,
        deliveries: &[Delivery],
    ) -> StoreResult<HashMap<EventId, Event>> {
        let ids: BTreeSet<EventId> = deliveries.iter().map(|delivery| delivery.event).collect();
        let found = self.store.events_by_id(tenant, ids.into_iter().collect()).await?;
        let filter = filter_of(events);
        let chosen = found.into_iter().filter(|event| {
            event.expunged_at.is_none() && filter.wants(event) && passes(events, event)
        });
        Ok(chosen.map(|event| (event.id, event)).collect())
    }

    /// Whether an event is for a subscription. Of what it got already, the filter of today is not asked.
    fn wants(&self, view: &Arc<SubscriptionView>, event: &Event, status: ReplayStatus) -> bool {
        match status {
            // Nobody can be sent what is not there.
            _ if event.expunged_at.is_some() => false,
            ReplayStatus::Failed | ReplayStatus::Delivered => true,
            ReplayStatus::All | ReplayStatus::Missed => {
                // One that costs too much is not delivered to anybody; so it is here.
                matching::decide(event, [view], &self.quotas).1.is_ok_and(|found| !found.is_empty())
            }
        }
    }

    fn redelivery(
        &self,
        event: &Event,
        view: &Arc<SubscriptionView>,
        status: ReplayStatus,
    ) -> Redelivery {
        let known = crate::request::EventLookup::new(event);
        Redelivery {
            event: event.id,
            subscription: view.subscription.id,
            id: self.chance.delivery_id(self.clock.now()),
            lane: view.lane(&known),
            status,
        }
    }
}

fn prepared<T>(page: &Page<T>, deeds: Vec<Redelivery>) -> Prepared {
    let (seen, last, more) = (page.items.len(), page.last, page.more);
    Prepared { deeds, seen, last, more, ..Prepared::default() }
}

fn filter_of(selection: &Selection) -> EventFilter {
    EventFilter {
        topics: selection.topics.clone(),
        types: selection.types.clone(),
        attributes: selection.attributes.clone(),
        accepted: Period { from: selection.from, until: selection.until },
        ..EventFilter::default()
    }
}

/// Whether an event is what the filter of a selection wants. The list of events knows nothing of such filters.
fn passes(selection: &Selection, event: &Event) -> bool {
    let wants = |filter| Matching::new(&Candidate::new(event)).wants(filter);
    selection.filter.as_ref().is_none_or(wants)
}

/// What somebody wants to have replayed.
#[derive(Clone, Debug)]
pub struct NewReplay {
    /// To this subscription; without one, again to all who have a delivery.
    pub subscription: Option<SubscriptionId>,
    /// Which events.
    pub events: Selection,
    /// Which of them.
    pub status: ReplayStatus,
    /// How many per second at most.
    pub per_second: u32,
    /// Who asks.
    pub created_by: String,
}

/// How much a replay would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCount {
    /// Deliveries that would be made or tried again.
    pub count: u64,
    /// Events that were looked at.
    pub seen: u64,
    /// Whether that were all.
    pub complete: bool,
}

impl Engine {
    /// Begins to deliver events of the past.
    pub async fn create_replay(&self, tenant: TenantId, new: NewReplay) -> Result<Job> {
        let job = self.replay(tenant, new).await?;
        self.begin_job(job).await
    }

    /// Writes a job down and makes its first go.
    pub(crate) async fn begin_job(&self, job: Job) -> Result<Job> {
        self.write_job(&job).await?;
        self.go_on(job).await
    }

    /// Writes a job down.
    async fn write_job(&self, job: &Job) -> Result<()> {
        let line = created(AuditAction::JobCreated, "job", &job.id, job.tenant);
        let line = line.detailed(job_detail(job));
        let write = |along| self.store().create_job_with(job.clone(), None, along);
        self.writing(None, Some(line), true, write).await?;
        Ok(())
    }

    /// Makes the first go of a job that was written down.
    pub(crate) async fn go_on(&self, job: Job) -> Result<Job> {
        let tenant = job.tenant;
        // The first go is made at once. Should it fail, whoever is on duty goes on all the same.
        if let Err(e) = self.inner.jobs.begin(&job).await {
            tracing::warn!(error = %crate::error::chain(&e), job = %job.id, "a job starts with the next round of jobs");
        }
        Ok(self.store().job(tenant, job.id).await?.unwrap_or(job))
    }

    async fn replay(&self, tenant: TenantId, new: NewReplay) -> Result<Job> {
        let now = self.now();
        if let Some(id) = new.subscription {
            self.catalog().subscription(tenant, id)?;
        } else if !matches!(new.status, ReplayStatus::Failed | ReplayStatus::Delivered) {
            let problem = "must be failed or delivered without a subscription".to_owned();
            return Err(Error::Event { field: "status", problem });
        }
        if new.events.from.is_some_and(|from| from >= now) {
            let problem = "must be in the past".to_owned();
            return Err(Error::Event { field: "from", problem });
        }
        self.check_kept(tenant, new.events.from).await?;
        let mut events = new.events;
        // What comes from now on is delivered anyway.
        events.until = Some(events.until.map_or(now, |until| until.min(now)));
        let work = JobWork::Replay { subscription: new.subscription, events, status: new.status };
        Ok(self.job(tenant, work, new.per_second, new.created_by))
    }

    pub(crate) fn job(
        &self,
        tenant: TenantId,
        work: JobWork,
        per_second: u32,
        created_by: String,
    ) -> Job {
        let now = self.now();
        Job {
            id: self.inner.chance.job_id(now),
            tenant,
            work,
            per_second: per_second.clamp(1, JOB_PER_SECOND_MAX),
            state: JobState::Running,
            seen: 0,
            done: 0,
            created_by,
            created_at: now,
            finished_at: None,
            problem: None,
        }
    }

    /// The job of a subscription that begins in the past.
    pub(crate) async fn first_replay(
        &self,
        tenant: TenantId,
        subscription: SubscriptionId,
        from: Timestamp,
        created_by: String,
    ) -> Result<Job> {
        self.check_kept(tenant, Some(from)).await?;
        let until = Some(self.now().plus(CLOCKS_APART));
        let events = Selection { from: Some(from), until, ..Selection::default() };
        let status = ReplayStatus::Missed;
        let work = JobWork::Replay { subscription: Some(subscription), events, status };
        Ok(self.job(tenant, work, JOB_PER_SECOND_MAX, created_by))
    }

    /// Refuses what begins before the history that is kept.
    async fn check_kept(&self, tenant: TenantId, from: Option<Timestamp>) -> Result<()> {
        let horizon = self.now().minus(self.inner.options.event_retention);
        let Some(from) = from.filter(|from| *from < horizon) else { return Ok(()) };
        let oldest = Listing { order: Order::OldestFirst, after: None, limit: 1 };
        let page = self.store().events(tenant, EventFilter::default(), oldest).await?;
        let kept = page.items.first().map_or(horizon, |event| event.accepted_at);
        if from < kept { Err(Error::HistoryNotKept { from: kept }) } else { Ok(()) }
    }

    /// How much a replay would do. Nothing is changed. It looks at a bounded number of events.
    pub async fn count_replay(&self, tenant: TenantId, new: NewReplay) -> Result<ReplayCount> {
        let job = self.replay(tenant, new).await?;
        let mut counted = ReplayCount { count: 0, seen: 0, complete: false };
        let mut place = None;
        while (counted.seen as usize) < COUNT_MAX {
            let prepared = self.inner.jobs.prepare(&job, place, BITE).await?;
            let prepared = prepared.map_err(|_| Error::NotFound("subscription"))?;
            counted.seen += prepared.seen as u64;
            counted.count += self.would_act(tenant, &prepared.deeds).await?;
            place = prepared.last.or(place);
            if !prepared.more {
                counted.complete = true;
                break;
            }
        }
        Ok(counted)
    }

    /// How many of these would be made or tried again.
    async fn would_act(&self, tenant: TenantId, deeds: &[Redelivery]) -> Result<u64> {
        if deeds.is_empty() {
            return Ok(0);
        }
        let pairs = deeds.iter().map(|deed| (deed.event, deed.subscription)).collect();
        let states = self.store().delivery_states(tenant, pairs).await?;
        let acts = deeds.iter().zip(states).filter(
            |(deed, state): &(&Redelivery, Option<DeliveryState>)| {
                deed.status.decide(*state) != Replayed::Left
            },
        );
        Ok(acts.count() as u64)
    }

    /// Delivers one event to one subscription, whatever its filter says: again when it has it, for the first time
    /// when it has not.
    pub async fn deliver_event(
        &self,
        tenant: TenantId,
        event: EventId,
        subscription: SubscriptionId,
        created_by: String,
    ) -> Result<Job> {
        let found = self.store().event(tenant, event).await?.ok_or(Error::NotFound("event"))?;
        if found.expunged_at.is_some() {
            return Err(Error::Expunged);
        }
        self.catalog().subscription(tenant, subscription)?;
        let work = JobWork::Deliver { event, subscription };
        let job = self.job(tenant, work, 1, created_by);
        self.write_job(&job).await?;
        self.inner.jobs.begin(&job).await?;
        Ok(self.store().job(tenant, job.id).await?.unwrap_or(job))
    }

    /// Stops a job; what was done stays done.
    pub async fn cancel_job(&self, tenant: TenantId, id: JobId) -> Result<Job> {
        for _ in 0..REPLANS_MAX {
            let at = self.now();
            let found = self.store().job(tenant, id).await?.ok_or(Error::NotFound("job"))?;
            let ended = Job { state: JobState::Cancelled, finished_at: Some(at), ..found };
            let ending = self.inner.jobs.ending(&ended, at);
            let line = created(AuditAction::JobCancelled, "job", &id, tenant);
            let line = line.detailed(job_detail(&ended));
            let write = |along| self.store().cancel_job_with(tenant, id, at, ending.clone(), along);
            match self.writing_once(line, write).await {
                Err(StoreError::Refused(Refusal::Stale)) => self.refresh_catalog().await?,
                cancelled => {
                    let job = cancelled.map_err(|e| Error::from(e).about("job"))?;
                    let told = ending.map_or(Vec::new(), |ending| ending.told);
                    self.inner.teller.announce(&told).await;
                    return Ok(job);
                }
            }
        }
        Err(Error::Busy("the job is moving on; try again"))
    }
}
