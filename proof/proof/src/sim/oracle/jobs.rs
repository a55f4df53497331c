//! Jobs: what a replay, an expunge, a cancellation of many must do, and what it must not do twice.

use std::collections::BTreeSet;

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Budget, CancelReason, CatalogVersion, Delivery, DeliveryId, DeliveryState, EventId, Job, JobId,
    JobState, JobWork, ReplayStatus, TenantId, Timestamp,
};
use posthorn_store::{Bite, Bitten, Ending, Place, Redelivery};

use super::{Entry, Invariant, Oracle};

/// A job as it should be.
pub(super) struct Known {
    job: Job,
    place: Option<Place>,
    /// The catalog of its tenant when it began: what it must find is only sure while nobody changes it.
    catalog: Option<CatalogVersion>,
    /// Of the job of a subscription that begins in the past: the events that were there when both were written. What came
    /// later is planned with the subscription, and whatever the clocks of nodes said, nothing lies between.
    before: Option<BTreeSet<EventId>>,
}

impl Oracle {
    /// A job was written down; `begins` when its subscription was created with it.
    pub(crate) fn job_made(&mut self, job: &Job, begins: bool) {
        let catalog = self.tenants.get(&job.tenant).copied();
        let own = self.events.values().filter(|event| event.tenant == job.tenant);
        let before = begins.then(|| own.map(|event| event.id).collect());
        self.jobs.insert(job.id, Known { job: job.clone(), place: None, catalog, before });
    }

    /// A job was stopped.
    pub(crate) fn job_stopped(&mut self, now: Timestamp, job: &Job, told: Option<&Ending>) {
        let Some(known) = self.jobs.get_mut(&job.id) else { return };
        let ends = known.job.state == JobState::Running;
        known.job.state = job.state;
        self.told_by_end(now, job.tenant, told.filter(|_| ends), ends);
    }

    /// Whose a job is.
    pub(super) fn tenant_of_job(&self, id: JobId) -> Option<TenantId> {
        self.jobs.get(&id).map(|known| known.job.tenant)
    }

    /// A tenant is being deleted by a job that stands so; its other jobs are stopped.
    pub(super) fn set_job_states(&mut self, tenant: TenantId, own: JobId, state: JobState) {
        for known in self.jobs.values_mut().filter(|known| known.job.tenant == tenant) {
            if known.job.id == own {
                known.job.state = state;
            } else if known.job.state == JobState::Running {
                known.job.state = JobState::Cancelled;
            }
        }
    }

    /// Those that have not ended.
    pub(crate) fn running_jobs(&self) -> Vec<(TenantId, JobId)> {
        let running = self.jobs.values().filter(|known| known.job.state == JobState::Running);
        running.map(|known| (known.job.tenant, known.job.id)).collect()
    }

    /// Whether one that has not ended is still there after history was removed.
    pub(crate) fn job_kept(&mut self, now: Timestamp, id: JobId, there: bool) {
        self.expect(there, Invariant::I16, now, || format!("{id} runs and was removed"));
    }

    /// A job went on by one bite. Returns whom it moved, to be compared with the store.
    pub(crate) fn bitten(
        &mut self,
        now: Timestamp,
        bite: &Bite,
        answer: &Bitten,
    ) -> Vec<DeliveryId> {
        let Some(known) = self.jobs.get(&bite.job) else { return Vec::new() };
        let id = bite.job;
        if known.job.state != JobState::Running || known.place != bite.expected {
            self.expect(answer.done == 0, Invariant::I10, now, || {
                format!("{id} did something though another node had been faster, or it had ended")
            });
            return Vec::new();
        }
        let (tenant, budget) = (known.job.tenant, known.job.work.budget());
        if let JobWork::Replay { events, .. } = &known.job.work {
            let first = events.from_event;
            let early =
                bite.deeds.iter().find(|deed| first.is_some_and(|first| deed.event < first));
            let early = early.map(|deed| deed.event);
            self.expect(early.is_none(), Invariant::I14, now, || {
                format!("{id} begins with {first:?}, and delivers {early:?}")
            });
        }
        let (mut moved, mut recalls) = (Vec::new(), false);
        for deed in &bite.deeds {
            if let Some((delivery, recalled)) =
                self.redelivered(now, tenant, (deed, budget), bite.at)
            {
                moved.push(delivery);
                recalls |= recalled;
            }
        }
        let (quiet, recalled) = self.moved_many(now, tenant, bite);
        recalls |= recalled;
        moved.extend(&quiet);
        let gone = bite.expunges.as_ref();
        let gone = gone.map_or(0, |wanted| self.expunged_many(now, tenant, wanted, bite.at));
        let done = moved.len() + gone;
        self.expect(done == answer.done, Invariant::I10, now, || {
            format!("{id} made, retried, cancelled, forgot or expunged {}, not {done}", answer.done)
        });
        self.expect(recalls == answer.recall.is_some(), Invariant::I12, now, || {
            format!("{id} went on and nodes hear {:?} of it", answer.recall)
        });
        if let Some(known) = self.jobs.get_mut(&id) {
            known.place = bite.cursor;
            known.job.state = answer.state;
        }
        let ends = answer.state != JobState::Running;
        self.told_by_end(now, tenant, bite.ending.as_ref().filter(|_| ends), ends);
        match answer.state {
            JobState::Done => self.all_is_there(now, id),
            JobState::Failed => self.had_to_fail(now, id),
            JobState::Running | JobState::Cancelled => {}
        }
        moved
    }

    /// What a bite cancels, forgets or tries again; whether nodes must hear of it.
    fn moved_many(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        bite: &Bite,
    ) -> (Vec<DeliveryId>, bool) {
        let (mut ids, mut recalls) = (Vec::new(), false);
        let Some(moves) = &bite.moves else { return (ids, recalls) };
        for id in &moves.deliveries {
            let Some(entry) = self.deliveries.get(id) else { continue };
            let left = self.subscriptions.get(&entry.delivery.subscription);
            let left = left.is_none_or(|known| known.deleted);
            let waits = !entry.delivery.state.is_terminal();
            let seen = match left && waits {
                true => entry.delivery.clone().cancelled(CancelReason::Unsubscribed, now),
                false => entry.delivery.clone(),
            };
            let open = waits && !left;
            let possible = match moves.wish {
                Wish::Forget => true,
                Wish::Cancel => open || entry.blocks,
                Wish::Retry | Wish::RetryOnce => !left && !self.is_expunged(entry.delivery.event),
            };
            if entry.delivery.tenant != tenant || !moves.filter.wants(&seen) || !possible {
                continue;
            }
            recalls |= match moves.wish {
                Wish::Cancel => self.cancel_quietly(now, *id, bite.at),
                Wish::Retry => self.revive(now, (*id, Budget::Fresh), bite.at),
                Wish::RetryOnce => self.revive(now, (*id, Budget::Once), bite.at),
                Wish::Forget => self.forget_quietly(now, *id, bite.at),
            };
            ids.push(*id);
        }
        (ids, recalls)
    }

    /// What becomes of one event for one subscription; whether nodes must hear of it.
    fn redelivered(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        (deed, budget): (&Redelivery, Budget),
        at: Timestamp,
    ) -> Option<(DeliveryId, bool)> {
        let event = self.events.get(&deed.event).filter(|event| event.tenant == tenant)?;
        if self.is_expunged(deed.event) {
            return None;
        }
        let event = std::sync::Arc::clone(event);
        let subscription = self.subscriptions.get(&deed.subscription)?;
        if subscription.deleted || subscription.tenant != tenant {
            return None;
        }
        let ids = self.by_event.get(&deed.event).into_iter().flatten();
        let mut there = ids.filter_map(|id| self.deliveries.get(id));
        let there = there.find(|entry| entry.delivery.subscription == deed.subscription);
        let Some(entry) = there else {
            let wanted = matches!(deed.status, ReplayStatus::All | ReplayStatus::Missed);
            return wanted.then(|| (self.made_later(&event, (deed, budget), at), false));
        };
        let (id, state) = (entry.delivery.id, entry.delivery.state);
        // What was cancelled before its time is not tried before it.
        let scheduled = event.deliver_at.is_some_and(|later| later > at);
        if scheduled && matches!(state, DeliveryState::Cancelled(_)) {
            return None;
        }
        let again = match deed.status {
            ReplayStatus::All => state.is_terminal(),
            ReplayStatus::Failed => matches!(state, DeliveryState::Dead(_)),
            ReplayStatus::Delivered => state == DeliveryState::Delivered,
            ReplayStatus::Missed => false,
        };
        again.then(|| (id, self.revive(now, (id, budget), at)))
    }

    /// One that is made comes last in its lane, and its age begins now.
    fn made_later(
        &mut self,
        event: &posthorn_domain::Event,
        (deed, budget): (&Redelivery, Budget),
        at: Timestamp,
    ) -> DeliveryId {
        self.seq += 1;
        self.tally.deliveries += 1;
        let later = event.deliver_at.filter(|later| *later > at);
        let at = later.unwrap_or(at);
        let enters = later.zip(deed.lane.clone());
        let lane = deed.lane.clone().filter(|_| enters.is_none());
        let behind = lane.as_ref().is_some_and(|lane| self.occupied(deed.subscription, lane, None));
        let parked = behind || enters.is_some();
        let due_at = if parked { Timestamp::MAX } else { at };
        let delivery = Delivery {
            id: deed.id,
            event: event.id,
            subscription: deed.subscription,
            tenant: event.tenant,
            lane: lane.clone(),
            seq: self.seq,
            state: DeliveryState::Pending,
            due_at,
            attempts: 0,
            budget_base: 0,
            budget,
            budget_began: at,
            revival: 0,
            created_at: event.accepted_at,
            ended_at: None,
            last_outcome: None,
        };
        if let Some(lane) = lane {
            self.lanes.entry((deed.subscription, lane)).or_default().insert(deed.id);
        }
        self.by_event.entry(event.id).or_default().push(deed.id);
        self.made_by_jobs.insert(deed.id);
        self.deliveries.insert(deed.id, Entry { enters, ..Entry::new(delivery, due_at) });
        deed.id
    }

    /// A job fails only when what it is about is gone.
    fn had_to_fail(&mut self, now: Timestamp, id: JobId) {
        let Some(Known { job, .. }) = self.jobs.get(&id) else { return };
        let deleted = |id| self.subscriptions.get(id).is_none_or(|known| known.deleted);
        // A tenant that is being deleted has nothing left, as far as its jobs go.
        let leaving = self.is_closed(job.tenant);
        let gone = leaving
            || match &job.work {
                JobWork::Replay { subscription: Some(subscription), .. } => deleted(subscription),
                JobWork::Deliver { event, subscription, .. } => {
                    let there = self.events.contains_key(event) && !self.is_expunged(*event);
                    !there || deleted(subscription)
                }
                JobWork::Replay { subscription: None, .. }
                | JobWork::Cancel { .. }
                | JobWork::Forget { .. }
                | JobWork::Retry { .. }
                | JobWork::Expunge { .. }
                | JobWork::DeleteTenant => false,
            };
        let work = job.work.clone();
        self.expect(gone, Invariant::I14, now, || {
            format!("{id} has failed, and nothing of it is gone: {work:?}")
        });
    }

    /// When a replay of what was missed is done, nothing that its subscription wants is missing, as far as nobody has
    /// changed the catalog meanwhile.
    fn all_is_there(&mut self, now: Timestamp, id: JobId) {
        let Some(Known { job, catalog, before, .. }) = self.jobs.get(&id) else { return };
        let JobWork::Replay { subscription: Some(subscription), events, status, .. } = &job.work
        else {
            return;
        };
        let sure = self.tenants.get(&job.tenant) == catalog.as_ref();
        if !sure || !matches!(status, ReplayStatus::All | ReplayStatus::Missed) {
            return;
        }
        let forgotten: BTreeSet<_> =
            self.forgotten.values().map(|forgotten| forgotten.event).collect();
        let meant = self.events.values().filter(|event| {
            event.tenant == job.tenant
                && events.from.is_none_or(|from| event.accepted_at >= from)
                && events.from_event.is_none_or(|first| event.id >= first)
                && match before {
                    Some(before) => before.contains(&event.id),
                    None => {
                        events.until.is_none_or(|until| event.accepted_at < until)
                            && event.accepted_at < job.created_at
                    }
                }
                && !forgotten.contains(&event.id)
                && !self.is_expunged(event.id)
        });
        let missing = meant.filter(|event| {
            let ids = self.by_event.get(&event.id).into_iter().flatten();
            let mut there = ids.filter_map(|id| self.deliveries.get(id));
            self.fan_out(event).iter().any(|(wants, _)| wants == subscription)
                && !there.any(|entry| entry.delivery.subscription == *subscription)
        });
        let missing: Vec<_> = missing.map(|event| event.id).collect();
        self.expect(missing.is_empty(), Invariant::I14, now, || {
            format!("{id} is done, and these are missing: {missing:?}")
        });
    }
}
