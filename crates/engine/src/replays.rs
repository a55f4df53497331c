//! Replays and resends: what may be asked for, how much it would be, and the jobs that do it.
//!
//! # What it must not know
//! How a job goes on: that is [`crate::jobs`].

use std::time::Duration;

use posthorn_domain::{
    AuditAction, Budget, DeliveryState, EventId, Job, JobId, JobState, JobWork, ReplayStatus,
    Replayed, Seed, Selection, Span, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Error as StoreError, Place, Redelivery, Refusal};
use tokio::time::Instant;

use crate::audit::{created, job_detail};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::jobs::prepare::{Patience, Prepared, Room};
use crate::subscriptions::Beginning;
use crate::told::REPLANS_MAX;

/// The fastest a job may be.
pub const JOB_PER_SECOND_MAX: u32 = 5_000;
/// Rows that a count looks at before it gives up.
pub(crate) const COUNT_MAX: usize = 100_000;
/// How long a count may take before it gives up.
const COUNT_TIME: Duration = Duration::from_secs(10);
/// How much later than the subscription an event may seem to be accepted that came before it: clocks of nodes differ.
const CLOCKS_APART: Span = Span::from_secs(60);

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

/// How a job is to be made, where that is not as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What its id is made of; fresh when absent. A job that was made of the same seed before is given back as it is.
    pub seed: Option<Seed>,
    /// How often what it delivers is tried.
    pub budget: Budget,
}

/// How much a replay would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayCount {
    /// Deliveries that would be made or tried again.
    pub count: u64,
    /// Events or deliveries that were chosen, so far.
    pub seen: u64,
    /// Whether that were all.
    pub complete: bool,
}

/// A walk through what a job would do, bite by bite, until a bounded part of the history was looked at.
pub(crate) struct Walk {
    place: Option<Place>,
    /// Rows that may still be looked at.
    left: usize,
    until: Instant,
    seen: u64,
    complete: bool,
    is_over: bool,
}

impl Walk {
    pub(crate) fn new(left: usize) -> Self {
        let until = Instant::now() + COUNT_TIME;
        Self { place: None, left, until, seen: 0, complete: false, is_over: false }
    }

    /// The next part; `None` when that was all, or enough.
    pub(crate) async fn next(&mut self, jobs: &Jobs, job: &Job) -> Result<Option<Prepared>> {
        if self.is_over {
            return Ok(None);
        }
        let patience = Patience::Until(self.until);
        let prepared = jobs.prepare(job, self.place, Room::WHOLE, patience).await?;
        let prepared = prepared.map_err(|_| Error::NotFound("subscription"))?;
        self.seen += prepared.seen as u64;
        self.left = self.left.saturating_sub(prepared.looked);
        self.place = prepared.last;
        self.complete = !prepared.more;
        let enough = prepared.waits || self.left == 0 || Instant::now() >= self.until;
        self.is_over = self.complete || enough;
        Ok(Some(prepared))
    }

    /// What it came to.
    pub(crate) const fn end(&self, count: u64) -> ReplayCount {
        ReplayCount { count, seen: self.seen, complete: self.complete }
    }
}

impl Engine {
    /// Begins to deliver events of the past.
    pub async fn create_replay(&self, tenant: TenantId, new: NewReplay) -> Result<Job> {
        self.create_replay_with(tenant, new, Terms::default()).await
    }

    /// The same on terms of the caller's.
    pub async fn create_replay_with(
        &self,
        tenant: TenantId,
        new: NewReplay,
        terms: Terms,
    ) -> Result<Job> {
        self.begin_job_with(tenant, terms.seed, self.replay(tenant, new, terms.budget)).await
    }

    /// The job that was made of a seed before.
    async fn made_job(&self, tenant: TenantId, seed: Option<Seed>) -> Result<Option<Job>> {
        match seed {
            Some(seed) => Ok(self.store().job(tenant, JobId::of_seed(seed)).await?),
            None => Ok(None),
        }
    }

    /// Begins a job whose id is made of a seed, unless that was done already.
    pub(crate) async fn begin_job_with(
        &self,
        tenant: TenantId,
        seed: Option<Seed>,
        make: impl Future<Output = Result<Job>>,
    ) -> Result<Job> {
        let Some(id) = seed.map(JobId::of_seed) else { return self.begin_job(make.await?).await };
        if let Some(job) = self.made_job(tenant, seed).await? {
            return Ok(job);
        }
        match self.begin_job(Job { id, ..make.await? }).await {
            // On another node, in this very moment.
            Err(e @ Error::AlreadyExists(_)) => self.store().job(tenant, id).await?.ok_or(e),
            begun => begun,
        }
    }

    /// Writes a job down and makes its first go.
    async fn begin_job(&self, job: Job) -> Result<Job> {
        let line = created(AuditAction::JobCreated, "job", &job.id, job.tenant);
        let line = line.detailed(job_detail(&job));
        let write = |along| self.store().create_job_with(job.clone(), None, along);
        self.writing(None, Some(line), true, write).await?;
        self.go_on(job).await
    }

    /// Makes the first go of a job that was written down.
    pub(crate) async fn go_on(&self, job: Job) -> Result<Job> {
        let tenant = job.tenant;
        // The first go is made at once, unless it would only fill a disk that is full. Should it fail, whoever is on
        // duty goes on all the same.
        if !self.admission().is_disk_full()
            && let Err(e) = self.inner.jobs.begin(&job).await
        {
            tracing::warn!(error = %crate::error::chain(&e), job = %job.id, "a job starts with the next round of jobs");
        }
        // The job is written down, whatever happens now.
        Ok(self.store().job(tenant, job.id).await.ok().flatten().unwrap_or(job))
    }

    async fn replay(&self, tenant: TenantId, new: NewReplay, budget: Budget) -> Result<Job> {
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
        let NewReplay { subscription, status, .. } = new;
        let work = JobWork::Replay { subscription, events, status, budget };
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
        from: Beginning,
        created_by: String,
    ) -> Result<Job> {
        let (from, from_event, at) = match from {
            Beginning::Time(at) => (Some(at), None, at),
            // What comes after it may seem to be accepted before it: clocks are set back.
            Beginning::Event { id, accepted_at } => (None, Some(id), accepted_at),
        };
        self.check_kept(tenant, Some(at)).await?;
        let apart = match crate::plant::active("replay-skips-concurrent") {
            true => Span::ZERO,
            false => CLOCKS_APART,
        };
        let until = Some(self.now().plus(apart));
        let events = Selection { from, from_event, until, ..Selection::default() };
        let status = ReplayStatus::Missed;
        let (subscription, budget) = (Some(subscription), Budget::Fresh);
        let work = JobWork::Replay { subscription, events, status, budget };
        Ok(self.job(tenant, work, JOB_PER_SECOND_MAX, created_by))
    }

    /// Refuses what begins before the history that is kept. What is older than the retention may be gone, whatever
    /// is still there of it: a dead letter is kept longer. What was removed stays removed when the retention is raised, so
    /// the store is asked, too. Of a tenant that is younger, nothing can be gone.
    async fn check_kept(&self, tenant: TenantId, from: Option<Timestamp>) -> Result<()> {
        let Some(from) = from else { return Ok(()) };
        let kept = self.now().minus(self.inner.options.event_retention);
        let kept = self.store().pruned_before().await?.map_or(kept, |before| before.max(kept));
        let is_young = || self.catalog().tenant(tenant).is_ok_and(|own| own.created_at >= kept);
        match from < kept && !is_young() {
            true => Err(Error::HistoryNotKept { from: kept }),
            false => Ok(()),
        }
    }

    /// How much a replay would do. Nothing is changed. It looks at a bounded number of events.
    pub async fn count_replay(&self, tenant: TenantId, new: NewReplay) -> Result<ReplayCount> {
        let job = self.replay(tenant, new, Budget::Fresh).await?;
        let (mut walk, mut count) = (Walk::new(COUNT_MAX), 0);
        while let Some(prepared) = walk.next(&self.inner.jobs, &job).await? {
            count += self.would_act(tenant, &prepared.deeds).await?;
        }
        Ok(walk.end(count))
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
        self.deliver_event_with(tenant, event, subscription, created_by, Terms::default()).await
    }

    /// The same on terms of the caller's.
    pub async fn deliver_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        subscription: SubscriptionId,
        created_by: String,
        terms: Terms,
    ) -> Result<Job> {
        // What was asked for may be impossible by now, and was done all the same.
        if let Some(job) = self.made_job(tenant, terms.seed).await? {
            return Ok(job);
        }
        let found = self.store().event(tenant, event).await?.ok_or(Error::NotFound("event"))?;
        if found.expunged_at.is_some() {
            return Err(Error::Expunged);
        }
        self.catalog().subscription(tenant, subscription)?;
        let work = JobWork::Deliver { event, subscription, budget: terms.budget };
        let make = async { Ok(self.job(tenant, work, 1, created_by)) };
        self.begin_job_with(tenant, terms.seed, make).await
    }

    /// Stops a job; what was done stays done.
    pub async fn cancel_job(&self, tenant: TenantId, id: JobId) -> Result<Job> {
        for _ in 0..REPLANS_MAX {
            let at = self.now();
            let found = self.store().job(tenant, id).await?.ok_or(Error::NotFound("job"))?;
            // One that has ended stays as it is, and that was told.
            if found.finished_at.is_some() {
                return Ok(found);
            }
            let ended = Job { state: JobState::Cancelled, finished_at: Some(at), ..found };
            let ending = self.inner.jobs.ending(&ended, at);
            let line = created(AuditAction::JobCancelled, "job", &id, tenant);
            let line = line.detailed(job_detail(&ended));
            let write = |along| self.store().cancel_job_with(tenant, id, at, ending.clone(), along);
            match self.writing_once(line, write).await {
                Err(StoreError::Refused(Refusal::Stale)) => self.refresh_catalog().await?,
                cancelled => {
                    let job = cancelled.map_err(|e| Error::from(e).about("job"))?;
                    if job.state == JobState::Cancelled && job.finished_at == Some(at) {
                        let told = ending.map_or(Vec::new(), |ending| ending.told);
                        self.inner.teller.announce(&told).await;
                    }
                    return Ok(job);
                }
            }
        }
        Err(Error::Busy("the job is moving on; try again"))
    }
}
