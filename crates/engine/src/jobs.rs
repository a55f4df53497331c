//! Jobs: events of the past, delivered to whom they are wanted for, or expunged, and deliveries, cancelled, forgotten or
//! tried again, at a bounded pace.
//!
//! # Theory of operation
//! A job is a row in the store. Whoever is on duty reads the next part of the history for each job that runs
//! ([`crate::job_rounds`]), decides what of it is wanted ([`prepare`]), and has the store do that in one transaction together with the job's progress
//! ([`Store::advance_job`]). The store decides again whether a delivery is there already, so that nothing is made
//! twice, whoever was faster, and whatever was killed in between.
//!
//! Those of a lane come in the order of their events, behind whatever is in the lane already: an event of the past
//! must not overtake one of the present.
//!
//! # What it must not know
//! Which jobs there should be, whose turn it is, and who is on duty.

pub(crate) mod prepare;

use std::sync::Arc;

use posthorn_domain::{Clock, Job, JobState, Timestamp};
use posthorn_store::{
    Bite, Ending, Error as StoreError, Place, Refusal, Result as StoreResult, Store,
};

use crate::catalog::Catalog;
use crate::chance::Chance;
use crate::job_rounds::Allowance;
use crate::matching::Matcher;
use crate::quotas::Quotas;
use crate::redriver::Redriver;
use crate::told::{Fact, REPLANS_MAX, Teller};
use prepare::{Patience, Room};

/// What a go needs.
#[derive(Clone)]
pub(crate) struct Jobs {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) matcher: Arc<Matcher>,
    /// Tells nodes what is due because of it.
    pub(crate) redriver: Redriver,
    pub(crate) teller: Arc<Teller>,
}

/// What a bite came to.
#[derive(Debug)]
pub(crate) struct Step {
    /// Where the job stands now.
    pub(crate) place: Option<Place>,
    /// Deliveries that were wanted.
    pub(crate) wanted: usize,
    /// Rows that were looked at.
    pub(crate) looked: usize,
    pub(crate) then: Then,
}

/// How a job goes on after a bite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// With the next one.
    GoesOn,
    /// Later: it is not its tenant's turn to match what is costly.
    Waits,
    /// Not at all, or not from this node.
    Ended,
}

impl Step {
    const fn ended(place: Option<Place>, looked: usize) -> Self {
        Self { place, wanted: 0, looked, then: Then::Ended }
    }
}

impl Jobs {
    /// The first bite of a job, at once, so that a small one is done when its request is answered. The rest waits for
    /// its turns: whoever asks for many jobs gets no more than others.
    pub(crate) async fn begin(&self, job: &Job) -> StoreResult<()> {
        self.bite(job, None, Allowance::of(job).room()).await.map(drop)
    }

    /// Hears what other nodes have changed: a job counts on what was there when somebody asked for it.
    pub(crate) async fn catch_up(&self) -> StoreResult<()> {
        if crate::plant::active("job-trusts-old-catalog") {
            return Ok(());
        }
        self.teller.refresh().await
    }

    /// Does the next part of a job, as far as there is room.
    pub(crate) async fn bite(
        &self,
        job: &Job,
        place: Option<Place>,
        room: Room,
    ) -> StoreResult<Step> {
        let prepared = match self.prepare(job, place, room, Patience::None).await? {
            Ok(prepared) => prepared,
            Err(problem) => {
                self.give_up(job, place, problem).await?;
                return Ok(Step::ended(place, 0));
            }
        };
        if let Some(rows) = prepared.removes {
            return self.remove(job, place, rows).await;
        }
        let (cursor, wanted, looked) = (prepared.last, prepared.wanted(), prepared.looked);
        if prepared.waits && cursor == place {
            return Ok(Step { place, wanted: 0, looked, then: Then::Waits });
        }
        // What is told of an end is the whole of it: then the end is a bite of its own.
        let tells = !prepared.more && self.teller.is_wanted(job.tenant);
        if tells && prepared.seen == 0 {
            self.end(job, place, JobState::Done, None).await?;
            return Ok(Step::ended(place, looked));
        }
        let bite = Bite {
            job: job.id,
            expected: place,
            cursor,
            seen: prepared.seen as u64,
            deeds: prepared.deeds,
            expunges: prepared.expunges,
            moves: prepared.moves,
            removes: None,
            ends: (!prepared.more && !tells).then_some(JobState::Done),
            ending: None,
            problem: None,
            at: self.clock.now(),
        };
        let bitten = self.store.advance_job(bite).await?;
        self.redriver.tell(bitten.recall, &bitten.subscriptions).await;
        if tells && bitten.state == JobState::Running {
            self.end(job, cursor, JobState::Done, None).await?;
            return Ok(Step::ended(cursor, looked));
        }
        let stands_still = wanted > 0 && bitten.done == 0 && cursor == place;
        let goes_on = bitten.state == JobState::Running && !stands_still;
        let then = match goes_on {
            true if prepared.waits => Then::Waits,
            true => Then::GoesOn,
            false => Then::Ended,
        };
        Ok(Step { place: cursor, wanted, looked, then })
    }

    /// Removes the next rows of a tenant that is being deleted. Which of these bites is the last, the store finds out:
    /// so each of them has with it what is told of the end.
    async fn remove(&self, job: &Job, place: Option<Place>, rows: usize) -> StoreResult<Step> {
        let at = self.clock.now();
        let goes_on = Step { place, wanted: rows, looked: rows, then: Then::GoesOn };
        let Some(now) = self.store.job(job.tenant, job.id).await? else {
            return Ok(Step::ended(place, 0));
        };
        let ending = self.ending(&Job { state: JobState::Done, finished_at: Some(at), ..now }, at);
        let bite = Bite {
            job: job.id,
            expected: place,
            cursor: place,
            seen: 0,
            deeds: Vec::new(),
            expunges: None,
            moves: None,
            removes: Some(rows),
            ends: None,
            ending: ending.clone(),
            problem: None,
            at,
        };
        let bitten = match self.store.advance_job(bite).await {
            // Something else happened first. The next bite is planned on what there is then.
            Err(StoreError::Refused(Refusal::Stale)) => {
                self.teller.refresh().await?;
                return Ok(goes_on);
            }
            bitten => bitten?,
        };
        self.redriver.tell(bitten.recall, &bitten.subscriptions).await;
        if bitten.state == JobState::Running {
            // With something to tell, the last bite is one that finds nothing.
            return Ok(goes_on);
        }
        self.announce_end(job, ending, at).await?;
        Ok(Step::ended(place, rows))
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
            if now.finished_at.is_some() {
                return Ok(());
            }
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
                moves: None,
                removes: None,
                ends: Some(state),
                ending: ending.clone(),
                problem,
                at,
            };
            match self.store.advance_job(bite).await {
                Err(StoreError::Refused(Refusal::Stale)) => self.teller.refresh().await?,
                Ok(_) => return self.announce_end(job, ending, at).await,
                Err(e) => return Err(e),
            }
        }
        // Whoever is on duty tries again.
        Ok(())
    }

    /// What was told of an end is due, if it was this end and no other: somebody else may have been faster.
    async fn announce_end(
        &self,
        job: &Job,
        ending: Option<Ending>,
        at: Timestamp,
    ) -> StoreResult<()> {
        let Some(ending) = ending else { return Ok(()) };
        let ended = self.store.job(job.tenant, job.id).await?;
        if ended.is_some_and(|ended| ended.finished_at == Some(at)) {
            self.teller.announce(&ending.told).await;
        }
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
}
