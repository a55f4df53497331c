//! Who of the running jobs goes on, and how fast all of them together may be.
//!
//! # Theory of operation
//! Once a second, the node on duty asks the store which jobs are running, and gives each what it may do in that
//! second. Then they take turns, bite by bite: the tenants in turn, and of a tenant its jobs in turn. So a job waits
//! for one bite of each other tenant, however many jobs those have and however long they are. A round that did not
//! come to its end goes on with whoever would have been next.
//!
//! After each bite there is a pause as long as the rows it looked at are worth ([`TOTAL_PER_SECOND`]): that bounds
//! all jobs together, and leaves the store to publishes and deliveries in between. While publishes wait too long for
//! their commits, jobs keep a tenth of their pace; while the disk is full, they wait: they would only make more rows.
//!
//! A bite that fails may have been too much for the store. It is repeated half as large, and again, until it works.
//!
//! # What it must not know
//! What a bite does, and what jobs are for. Chores are somebody else's affair and wait for nothing here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Job, JobId, Shard, TenantId};
use posthorn_store::{Place, Store};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::warn;

use crate::admission::Admission;
use crate::error::chain;
use crate::jobs::prepare::Room;
use crate::jobs::{Jobs, Then};
use crate::metrics;
use crate::replays::JOB_PER_SECOND_MAX;
use crate::wakes::Wakes;

/// How often it is asked which jobs are running, and their allowances begin anew.
const ROUND: Duration = Duration::from_secs(1);
/// Rows that all jobs together look at in a second: as much as one job alone may. It is about a quarter of what a small
/// machine can publish in a second.
const TOTAL_PER_SECOND: u32 = JOB_PER_SECOND_MAX;
/// Rows that one job looks at in a second, at most, when hardly any of them is wanted.
const LOOKS_PER_SECOND: usize = JOB_PER_SECOND_MAX as usize;
/// So many looks are worth as much as the commit of a bite.
const COMMIT: usize = 10;
/// How often a bite that fails is halved: then it looks at a single row.
const HALVINGS_MAX: u32 = 13;
/// After so many bites that did not fail, the next may be twice as large.
const BITES_TO_GROW: u32 = 10;
/// How much longer the pauses are while publishes wait too long.
const PRESSED: u32 = 10;
/// Jobs that take part in one round, of each tenant the oldest first; the others wait until some have ended.
const JOBS_MAX: usize = 1_000;

pub(crate) struct JobRounds {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) jobs: Jobs,
    pub(crate) admission: Arc<Admission>,
    pub(crate) wakes: Wakes,
}

impl JobRounds {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turns = Turns::default();
        loop {
            let until = rounds.tick().await + ROUND;
            if !self.may_work() {
                continue;
            }
            match self.store.running_jobs(JOBS_MAX).await {
                Ok(running) if running.is_empty() => continue,
                Ok(running) => turns.begin(running),
                Err(e) => {
                    ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "job").increment(1);
                    warn!(error = %chain(&e), "running jobs could not be read; they will be retried");
                    continue;
                }
            }
            if let Err(e) = self.jobs.catch_up().await {
                ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "job").increment(1);
                warn!(error = %chain(&e), "jobs wait until the catalog can be read");
                continue;
            }
            self.round(&mut turns, until).await;
        }
    }

    fn may_work(&self) -> bool {
        let on_duty = Shard::new(0).is_some_and(|first| self.wakes.holds(first));
        on_duty && !self.admission.is_disk_full()
    }

    /// Bite by bite, until everybody has had what it may, or the next round begins.
    async fn round(&self, turns: &mut Turns, until: Instant) {
        while Instant::now() < until && self.may_work() {
            let Some(mut turn) = turns.next() else { return };
            let began = Instant::now();
            let room = turn.allowance.room().halved(turns.halvings(turn.job.id));
            let looked = match self.jobs.bite(&turn.job, turn.place, room).await {
                Ok(step) => {
                    turns.succeeded(turn.job.id);
                    turn.place = step.place;
                    turn.allowance.take(step.looked, step.wanted);
                    if step.then == Then::GoesOn {
                        turns.back(turn);
                    }
                    step.looked
                }
                // The others go on: one that cannot be moved now is tried again with the next round.
                Err(e) => {
                    ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "job").increment(1);
                    warn!(error = %chain(&e), job = %turn.job.id, "a job could not continue; it will be retried");
                    turns.failed(turn.job.id);
                    room.looks
                }
            };
            sleep_until(began + pause(looked.max(COMMIT), self.admission.is_overloaded())).await;
        }
    }
}

/// How long a bite that looked at so many rows is worth; longer while publishes wait too long.
fn pause(looked: usize, pressed: bool) -> Duration {
    let slower = if pressed { PRESSED } else { 1 };
    let looked = u32::try_from(looked).unwrap_or(u32::MAX);
    Duration::from_secs(1) * looked.saturating_mul(slower) / TOTAL_PER_SECOND
}

/// What a job may do in a second.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Deliveries it may make or try again.
    deeds: usize,
    /// Rows it may look at.
    looks: usize,
}

impl Allowance {
    pub(crate) fn of(job: &Job) -> Self {
        Self { deeds: job.per_second as usize, looks: LOOKS_PER_SECOND }
    }

    /// What there is room for in the next bite.
    pub(crate) fn room(&self) -> Room {
        let Room { looks, deeds, listed } = Room::WHOLE;
        Room { looks: looks.min(self.looks), deeds: deeds.min(self.deeds), listed }
    }

    /// A bite was done that looked at so many rows, and wanted so many deliveries.
    pub(crate) fn take(&mut self, looked: usize, wanted: usize) {
        self.deeds = self.deeds.saturating_sub(wanted);
        self.looks = self.looks.saturating_sub(looked);
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.deeds == 0 || self.looks == 0
    }
}

/// A job whose turn it is, or will be.
#[derive(Debug)]
struct Turn {
    job: Job,
    place: Option<Place>,
    /// What is left to it in this second.
    allowance: Allowance,
}

/// Whose turn it is: tenants in the order of their ids, and of a tenant its jobs in the order of theirs.
#[derive(Debug, Default)]
struct Turns {
    waiting: VecDeque<(TenantId, VecDeque<Turn>)>,
    /// Who had the last turn, and of each tenant which job.
    last_tenant: Option<TenantId>,
    last_jobs: BTreeMap<TenantId, JobId>,
    /// Those whose last bites have failed: how often the next is halved, and how many have worked since.
    smaller: BTreeMap<JobId, (u32, u32)>,
}

impl Turns {
    /// A new second: everybody has its allowance, and those go first who would have been next.
    fn begin(&mut self, running: Vec<(Job, Option<Place>)>) {
        let ids: BTreeSet<JobId> = running.iter().map(|(job, _)| job.id).collect();
        self.smaller.retain(|id, _| ids.contains(id));
        let mut tenants: BTreeMap<TenantId, BTreeMap<JobId, Turn>> = BTreeMap::new();
        for (job, place) in running {
            let allowance = Allowance::of(&job);
            let of_tenant = tenants.entry(job.tenant).or_default();
            of_tenant.insert(job.id, Turn { job, place, allowance });
        }
        self.last_jobs.retain(|tenant, _| tenants.contains_key(tenant));
        self.waiting.clear();
        for (tenant, turns) in tenants {
            let last = self.last_jobs.get(&tenant);
            let passed = turns.keys().filter(|id| last.is_some_and(|last| *id <= last)).count();
            let mut turns: VecDeque<Turn> = turns.into_values().collect();
            turns.rotate_left(passed);
            self.waiting.push_back((tenant, turns));
        }
        let last = self.last_tenant;
        let passed = self.waiting.iter().filter(|(id, _)| last.is_some_and(|last| *id <= last));
        let passed = passed.count();
        self.waiting.rotate_left(passed);
    }

    /// Who is next. It comes again only when it is given [`Turns::back`].
    fn next(&mut self) -> Option<Turn> {
        let (tenant, mut turns) = self.waiting.pop_front()?;
        let turn = turns.pop_front();
        // Also when it was the last of its tenant: it may be given back, and then others go first.
        self.waiting.push_back((tenant, turns));
        let Some(turn) = turn else {
            self.waiting.pop_back();
            return self.next();
        };
        self.last_tenant = Some(tenant);
        self.last_jobs.insert(tenant, turn.job.id);
        Some(turn)
    }

    /// How often the next bite of a job is halved.
    fn halvings(&self, job: JobId) -> u32 {
        self.smaller.get(&job).map_or(0, |(halvings, _)| *halvings)
    }

    fn failed(&mut self, job: JobId) {
        let (halvings, worked) = self.smaller.entry(job).or_default();
        (*halvings, *worked) = ((*halvings + 1).min(HALVINGS_MAX), 0);
    }

    fn succeeded(&mut self, job: JobId) {
        let Some((halvings, worked)) = self.smaller.get_mut(&job) else { return };
        *worked += 1;
        if *worked == BITES_TO_GROW {
            (*halvings, *worked) = (*halvings - 1, 0);
        }
        if *halvings == 0 {
            self.smaller.remove(&job);
        }
    }

    /// Has one wait for its next turn, if it has anything left in this second.
    fn back(&mut self, turn: Turn) {
        if turn.allowance.is_spent() {
            return;
        }
        let own = self.waiting.iter_mut().find(|(tenant, _)| *tenant == turn.job.tenant);
        if let Some((_, turns)) = own {
            turns.push_back(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::{JobState, JobWork, ReplayStatus, Selection, Timestamp};

    use super::*;

    fn job(tenant: u128, number: u128, per_second: u32) -> (Job, Option<Place>) {
        let at = Timestamp::from_millis(0);
        let events = Selection::default();
        let work = JobWork::Replay {
            subscription: None,
            events,
            status: ReplayStatus::Failed,
            budget: posthorn_domain::Budget::Fresh,
        };
        let job = Job {
            id: JobId::new(at, number),
            tenant: TenantId::new(at, tenant),
            work,
            per_second,
            state: JobState::Running,
            seen: 0,
            done: 0,
            created_by: String::new(),
            created_at: at,
            finished_at: None,
            problem: None,
        };
        (job, None)
    }

    /// Takes so many turns, each of which finds something.
    fn take(turns: &mut Turns, count: usize) -> Vec<(TenantId, JobId)> {
        let mut taken = Vec::new();
        for _ in 0..count {
            let Some(mut turn) = turns.next() else { break };
            taken.push((turn.job.tenant, turn.job.id));
            let room = turn.allowance.room();
            let looked = room.looks.min(room.deeds);
            turn.allowance.take(looked, looked);
            turns.back(turn);
        }
        taken
    }

    #[test]
    fn tenants_take_turns_whatever_they_have() {
        let mut running: Vec<_> = (0..100).map(|number| job(1, number, 10_000)).collect();
        running.push(job(2, 1_000, 10_000));
        let names = |found: &[usize]| -> Vec<(TenantId, JobId)> {
            found.iter().map(|at| (running[*at].0.tenant, running[*at].0.id)).collect()
        };
        let mut turns = Turns::default();
        turns.begin(running.clone());
        assert_eq!(take(&mut turns, 6), names(&[0, 100, 1, 100, 2, 100]));
        // A round that was cut short goes on where it was.
        turns.begin(running.clone());
        assert_eq!(take(&mut turns, 3), names(&[3, 100, 4]));
        turns.begin(running.clone());
        assert_eq!(take(&mut turns, 2), names(&[100, 5]));
    }

    #[test]
    fn nobody_has_more_than_its_pace_in_a_second() {
        let mut turns = Turns::default();
        turns.begin(vec![job(1, 1, 450), job(2, 2, 1)]);
        let taken = take(&mut turns, 100);
        let of = |number: u128| {
            let id = JobId::new(Timestamp::from_millis(0), number);
            taken.iter().filter(|(_, job)| *job == id).count()
        };
        assert_eq!((of(1), of(2)), (3, 1), "450 in three bites, one in one");
        turns.begin(vec![job(1, 1, 450)]);
        assert_eq!(take(&mut turns, 100).len(), 3, "the next second has as much");
        turns.begin(vec![job(1, 1, 10_000)]);
        assert_eq!(take(&mut turns, 100).len(), 25, "as much as a job may look at");
    }

    #[test]
    fn a_bite_that_fails_is_repeated_smaller_until_it_works() {
        let mut turns = Turns::default();
        let (one, place) = job(1, 1, 10_000);
        let id = one.id;
        turns.begin(vec![(one.clone(), place)]);
        let looks = |turns: &Turns| Room::WHOLE.halved(turns.halvings(id)).looks;
        let mut sizes = Vec::new();
        for _ in 0..9 {
            sizes.push(looks(&turns));
            turns.failed(id);
        }
        assert_eq!(sizes, [200, 100, 50, 25, 12, 6, 3, 1, 1]);
        (0..30).for_each(|_| turns.failed(id));
        assert_eq!(Room::WHOLE.halved(turns.halvings(id)), Room { looks: 1, deeds: 1, listed: 1 });
        (0..10).for_each(|_| turns.succeeded(id));
        assert_eq!(turns.halvings(id), HALVINGS_MAX - 1, "it grows again, slowly");
        (0..200).for_each(|_| turns.succeeded(id));
        assert_eq!(looks(&turns), 200);
        turns.failed(id);
        turns.begin(Vec::new());
        assert_eq!(looks(&turns), 200, "nothing is remembered of one that has ended");
    }

    #[test]
    fn all_jobs_together_have_a_pace_and_a_tenth_of_it_while_publishes_wait() {
        let bites = TOTAL_PER_SECOND as usize / Room::WHOLE.looks;
        let second =
            |pressed| (0..bites).map(|_| pause(Room::WHOLE.looks, pressed)).sum::<Duration>();
        assert_eq!((second(false), second(true)), (ROUND, ROUND * PRESSED));
    }
}
