//! What the scheduler has others do: attempts, claims, refills, scans. And what comes back.

use std::sync::Arc;

use posthorn_domain::{Shard, SubscriptionId, Timestamp};
use posthorn_store::{Claim, DueSubscription, FailingSubscription, Grant, PendingAsk, Store, Work};
use tokio::task::JoinError;
use tracing::{error, warn};

use super::clock_steps::Suspect;
use super::dispatch::RECORDING_MAX;
use super::queue::Ids;
use super::recent::Recent;
use super::{REFILL_ASKS_MAX, REFILL_BYTES_MAX, REFILLS_MAX, Scheduler};
use crate::attempt::{Done, Job};
use crate::error::chain;
use crate::metrics;

/// Subscriptions of one refill whose due times are looked at again, and how many of each.
const EXAMINING_MAX: usize = 8;
const EXAMINED_MAX: usize = 512;

/// How long a subscription rests when the store could not answer for it.
const STORE_TROUBLE: posthorn_domain::Span = posthorn_domain::Span::from_millis(500);

/// What a task of the scheduler ends with.
pub(super) enum TaskOutput {
    /// An attempt.
    Done(Box<Done>),
    /// Leases that were written down, or not. `None`: the store could not answer.
    Claimed(Vec<(Job, Option<bool>)>),
    /// Work from the store.
    Refilled(u64, Vec<(PendingAsk, Option<Vec<Work>>)>),
    /// Deliveries that seem to wait too long, with their last attempts.
    Examined(Vec<Suspect>),
    /// When the newest event was accepted.
    Newest(Timestamp),
    /// Receivers that have only failed so far; `None`: the store could not answer.
    Streaks(Vec<Shard>, Option<Vec<FailingSubscription>>),
    /// Subscriptions with work; `None`: the store could not answer.
    Scanned(Vec<Shard>, Option<Vec<DueSubscription>>),
}

/// Writes leases down before their attempts begin.
pub(super) async fn claim(store: Arc<dyn Store>, jobs: Vec<Job>, now: Timestamp) -> TaskOutput {
    let claims = jobs
        .iter()
        .map(|job| Claim {
            fence: job.fence,
            delivery: job.work.delivery.id,
            expected_attempts: job.work.delivery.attempts,
            expected_revival: job.work.delivery.revival,
            until: now.plus(job.policy.lease.time),
        })
        .collect();
    match store.claim(claims).await {
        Ok(granted) => {
            TaskOutput::Claimed(jobs.into_iter().zip(granted.into_iter().map(Some)).collect())
        }
        Err(e) => {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "claim").increment(1);
            warn!(error = %chain(&e), "leases could not be stored");
            TaskOutput::Claimed(jobs.into_iter().map(|job| (job, None)).collect())
        }
    }
}

async fn refill(store: Arc<dyn Store>, number: u64, asks: Vec<PendingAsk>) -> TaskOutput {
    match store.pending(asks.clone(), REFILL_BYTES_MAX).await {
        Ok(replies) => {
            let replies = replies.into_iter().map(Some);
            TaskOutput::Refilled(number, asks.into_iter().zip(replies).collect())
        }
        Err(e) => {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "pending").increment(1);
            warn!(error = %chain(&e), "due deliveries could not be read");
            TaskOutput::Refilled(number, asks.into_iter().map(|ask| (ask, None)).collect())
        }
    }
}

async fn scan(store: Arc<dyn Store>, shards: Vec<Shard>) -> TaskOutput {
    match store.due_subscriptions(&shards).await {
        Ok(due) => TaskOutput::Scanned(shards, Some(due)),
        Err(e) => {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "scan").increment(1);
            warn!(error = %chain(&e), "subscriptions with work could not be listed");
            tokio::time::sleep(STORE_TROUBLE.to_duration()).await;
            TaskOutput::Scanned(shards, None)
        }
    }
}

async fn streaks(store: Arc<dyn Store>, shards: Vec<Shard>) -> TaskOutput {
    match store.failing(&shards).await {
        Ok(rows) => TaskOutput::Streaks(shards, Some(rows)),
        Err(e) => {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "failing").increment(1);
            warn!(error = %chain(&e), "failing subscriptions could not be listed");
            tokio::time::sleep(STORE_TROUBLE.to_duration()).await;
            TaskOutput::Streaks(shards, None)
        }
    }
}

impl Scheduler {
    pub(super) fn finished(&mut self, output: Result<TaskOutput, JoinError>) {
        match output {
            Ok(TaskOutput::Done(done)) => {
                if !done.job.slot.is_sick() {
                    self.pressure.heard(done.waited, self.parts.clock.now());
                }
                self.attempted(*done);
            }
            Ok(TaskOutput::Claimed(claims)) => self.claimed(claims),
            Ok(TaskOutput::Refilled(number, replies)) => self.refilled(number, replies),
            Ok(TaskOutput::Examined(suspects)) => self.examined(suspects),
            Ok(TaskOutput::Newest(newest)) => self.learned_newest(newest),
            Ok(TaskOutput::Streaks(shards, Some(rows))) => {
                let held: Vec<Shard> = shards.into_iter().filter(|s| self.held.holds(*s)).collect();
                let rows =
                    rows.into_iter().filter(|row| held.contains(&Shard::of(row.subscription)));
                let catalog = &self.parts.catalog;
                self.streaks.load(&held, rows.collect(), |id| {
                    catalog.view(id).is_some_and(|view| view.subscription.status.is_active())
                });
            }
            Ok(TaskOutput::Streaks(shards, None)) => self.read_streaks(shards),
            Ok(TaskOutput::Scanned(_, Some(due))) => self.note_due(&due),
            Ok(TaskOutput::Scanned(shards, None)) => self.scan(shards),
            Err(e) => error!(error = %e, "a task of the scheduler crashed; this is a defect"),
        }
    }

    pub(super) fn gain(&mut self, grants: &[Grant]) {
        let now = self.parts.clock.now();
        let news: Vec<Shard> = grants
            .iter()
            .filter(|grant| self.held.gain(grant.shard, grant.epoch, now))
            .map(|grant| grant.shard)
            .collect();
        for shard in &news {
            self.parts.admission.set_held(*shard, true);
        }
        // What is in memory of a former ownership may be long out of date.
        self.forget_shards(&news);
        self.read_streaks(news.clone());
        self.scan(news);
        self.ask_for_the_future();
    }

    pub(super) fn lose(&mut self, shards: &[Shard]) {
        for shard in shards {
            self.held.lose(*shard);
            self.parts.admission.set_held(*shard, false);
        }
        self.forget_shards(shards);
    }

    fn read_streaks(&mut self, shards: Vec<Shard>) {
        let held: Vec<Shard> = shards.into_iter().filter(|s| self.held.holds(*s)).collect();
        if !held.is_empty() && !self.stopped {
            self.tasks.spawn(streaks(Arc::clone(&self.parts.store), held));
        }
    }

    fn forget_shards(&mut self, shards: &[Shard]) {
        self.streaks.forget_shards(shards);
        let mut gone: Vec<SubscriptionId> =
            self.queues.keys().filter(|id| shards.contains(&Shard::of(**id))).copied().collect();
        gone.sort_unstable();
        for id in gone {
            if let Some(mut queue) = self.queues.remove(&id) {
                if let Some(at) = queue.timer {
                    self.timers.remove(&(at, id));
                }
                self.wants_refill.remove(&id);
                let dropped: Vec<Work> = queue.drain().collect();
                for work in &dropped {
                    self.left_window(work);
                }
            }
        }
    }

    pub(super) fn scan(&mut self, shards: Vec<Shard>) {
        if crate::plant::active("lost-wake-up") && shards.len() > 8 {
            return;
        }
        let held: Vec<Shard> = shards.into_iter().filter(|s| self.held.holds(*s)).collect();
        if !held.is_empty() && !self.stopped {
            self.tasks.spawn(scan(Arc::clone(&self.parts.store), held));
        }
    }

    pub(super) fn start_refills(&mut self, now: Timestamp) {
        while self.refills < REFILLS_MAX && !self.wants_refill.is_empty() {
            self.refill_number += 1;
            let mut asks = Vec::new();
            let mut examining = 0;
            let mut later = Vec::new();
            while asks.len() < REFILL_ASKS_MAX
                && let Some(id) = self.wants_refill.pop_first()
            {
                let Some(queue) = self.queues.get_mut(&id) else { continue };
                let mut room = queue.window(self.parts.options.window_per_subscription) / 2;
                if queue.refill.is_some() || queue.on_disk.is_none_or(|due| due > now) {
                    continue;
                }
                if queue.examines().is_some() {
                    // What is corrected is written down, and must not fill the queue of outcomes.
                    if examining == EXAMINING_MAX || self.recording.len() > RECORDING_MAX / 4 {
                        later.push(id);
                        continue;
                    }
                    examining += 1;
                    room = room.min(EXAMINED_MAX);
                }
                queue.refill = Some(Ids::default());
                queue.refill_number = self.refill_number;
                queue.on_disk = None;
                asks.push(PendingAsk {
                    subscription: id,
                    from: queue.examines().unwrap_or(Timestamp::MIN),
                    until: Timestamp::from_millis(Timestamp::MAX.as_millis() - 1),
                    limit: room + queue.known(),
                });
            }
            let waits = !later.is_empty();
            self.wants_refill.extend(later);
            if asks.is_empty() {
                return;
            }
            self.refills += 1;
            self.tasks.spawn(refill(Arc::clone(&self.parts.store), self.refill_number, asks));
            if waits {
                return;
            }
        }
    }

    fn refilled(&mut self, number: u64, replies: Vec<(PendingAsk, Option<Vec<Work>>)>) {
        self.refills -= 1;
        let now = self.parts.clock.now();
        let bytes: usize = replies
            .iter()
            .flat_map(|(_, r)| r.iter().flatten())
            .map(|w| w.event.payload.len())
            .sum();
        let cut = bytes > REFILL_BYTES_MAX;
        for (ask, reply) in replies {
            let id = ask.subscription;
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            if queue.refill.is_none() || queue.refill_number != number {
                continue;
            }
            let since = queue.refill.take().unwrap_or_default();
            let Some(works) = reply else {
                queue.note_on_disk(now.plus(STORE_TROUBLE));
                self.evaluate(id);
                continue;
            };
            let last = works.last().map(|work| work.delivery.due_at);
            let more = works.len() >= ask.limit || cut;
            if more {
                // There may be more behind the last one, or, cut short, before any.
                queue.note_on_disk(last.unwrap_or(now));
            }
            if queue.examines() == Some(ask.from) {
                self.look_on(&ask, &works, more, now);
            }
            // Recorded meanwhile: this copy is old. The store is asked again if need be.
            let since = match crate::plant::active("refill-unfiltered") {
                true => Ids::default(),
                false => since,
            };
            let works = works.into_iter().filter(|work| !since.contains(&work.delivery.id));
            let mut works: Vec<Work> = works.collect();
            if self.clocks.was_ahead(now) {
                works = self.examine(id, works, now);
            }
            for work in works {
                if crate::plant::active("refill-unfiltered") {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.forget(work.delivery.id);
                    }
                    self.insert_trusted(work, now);
                    continue;
                }
                let (delivery, young) = (work.delivery.id, Recent::concerns(&work.delivery, now));
                self.insert_trusted(work, now);
                if young && let Some(queue) = self.queues.get_mut(&id) {
                    queue.mark_read(delivery);
                }
            }
            self.evaluate(id);
        }
    }

    fn claimed(&mut self, claims: Vec<(Job, Option<bool>)>) {
        let now = self.parts.clock.now();
        for (job, granted) in claims {
            match granted {
                Some(true) => self.launch(job),
                Some(false) => {
                    // Ended or moved on: whatever is true is in the store.
                    self.free_slot(&job);
                    self.held.busy(job.fence.shard, -1);
                    let id = job.work.delivery.subscription;
                    if self.is_present(&job.fence)
                        && let Some(queue) = self.queues.get_mut(&id)
                    {
                        queue.forget(job.work.delivery.id);
                        queue.note_on_disk(now);
                    }
                    self.evaluate(id);
                }
                None => {
                    self.free_slot(&job);
                    self.held.busy(job.fence.shard, -1);
                    self.give_back(job, now.plus(STORE_TROUBLE));
                }
            }
        }
    }

    /// Puts a delivery that was taken but not attempted back into the window, unless the shard has
    /// changed hands meanwhile: then the store is asked anyway, and may have answered already.
    pub(super) fn give_back(&mut self, job: Job, not_before: Timestamp) {
        let work = job.work;
        let id = work.delivery.subscription;
        let recalled = self.parts.catalog.is_recalled(&work.delivery);
        if self.is_present(&job.fence)
            && let Some(queue) = self.queues.get_mut(&id)
            && (recalled || queue.is_outdated(work.delivery.id))
        {
            queue.forget(work.delivery.id);
            queue.note_on_disk(not_before);
        } else if self.is_present(&job.fence)
            && let Some(queue) = self.queues.get_mut(&id)
            && queue.is_known(work.delivery.id)
        {
            self.window += 1;
            self.window_bytes += work.event.payload.len();
            queue.put_back(work, not_before);
        }
        self.evaluate(id);
    }
}
