//! Who begins: attempts for whoever is ready, as long as there are slots.

use std::sync::Arc;

use posthorn_domain::policy::{Limits, Policy};
use posthorn_domain::{
    Fence, Shard, Span, SubscriptionId, TenantId, Timestamp, WaitReason, Waiting,
};
use tokio::time::Instant;

use super::Scheduler;
use super::queue::Queue;
use super::ring::Ring;
use super::slots::{Class, Slots};
use super::tasks::{self, TaskOutput};
use crate::attempt::{self, Job, Needs};
use crate::catalog::{Map, SubscriptionView};
use crate::metrics;

/// Outcomes that may wait to be written before attempts stop being started.
pub(super) const RECORDING_MAX: usize = 8_192;
/// How long outcomes may stay unwritten before nothing new is started: what is sent meanwhile would
/// be sent again if the leases ran out first.
const UNWRITTEN_MAX: Span = Span::from_millis(500);
/// Young attempts of an unproven receiver at once while its tenant's are late.
const STRAINED_AT_ONCE: u32 = 2;

impl Scheduler {
    /// Starts attempts while there are slots and somebody is ready.
    pub(super) fn dispatch(&mut self, now: Timestamp) {
        if self.parts.around.hold.is_on() {
            return;
        }
        let ignored = crate::plant::active("ignore-lease-term");
        // Also for those who wait for a slot: what is started now would come back at once, and again.
        let waiting = [&self.ring, &self.waiting_failing, &self.waiting_slow, &self.waiting_quick];
        let waiting = waiting.iter().any(|ring| !ring.is_empty());
        let waiting =
            waiting && !(crate::plant::active("slots-ignore-lapse") && self.ring.is_empty());
        if waiting && !self.parts.term.is_valid() && !ignored {
            return;
        }
        if self.unwritten_since.is_some_and(|since| now.since(since) > UNWRITTEN_MAX) {
            return;
        }
        self.give_free_slots(now);
        while self.slots.has_room(Class::Quick)
            && self.recording.len() + self.slots.in_flight() < RECORDING_MAX
        {
            let Some(id) = self.ring.pop() else { break };
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.in_ring = false;
            let Some(view) = self.parts.catalog.view(id) else {
                self.evaluate_at(id, now);
                continue;
            };
            let Ok(policy) = view.policy.clone() else { continue };
            let class = queue.class(now);
            let tenant = view.subscription.tenant;
            if self.parts.catalog.has_paces() && self.is_paced(id, tenant, now) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            let refused = class == Class::Failing && self.pressure.room(now) == 0;
            if refused || !self.slots.has_room(class) || self.slots.room_of(tenant, class) == 0 {
                queue.awaits_slot = true;
                queue.stop(Waiting::on(WaitReason::Quota), now);
                self.waiting_for(class).push(tenant, id);
                continue;
            }
            self.start_one(id, &view, &policy, now);
            self.evaluate_at(id, now);
        }
        if !self.claims.is_empty() {
            let jobs = std::mem::take(&mut self.claims);
            let store = Arc::clone(&self.parts.store);
            self.tasks.spawn(tasks::claim(store, jobs, now));
        }
    }

    fn start_one(
        &mut self,
        id: SubscriptionId,
        view: &Arc<SubscriptionView>,
        policy: &Arc<Policy>,
        now: Timestamp,
    ) {
        let (shard, tenant) = (Shard::of(id), view.subscription.tenant);
        let Some((epoch, gained_at)) = self.held.usable(shard) else { return };
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let held = queue.health.held_until().max(queue.health.rate_slot(&policy.limits));
        if !view.subscription.status.is_active()
            || held > now
            || queue
                .crowded(policy, at_once(queue, &self.slots, tenant, &policy.limits), now)
                .is_some()
        {
            return;
        }
        // Nobody knows when the former owner last called, so spacing begins with the ownership.
        let floor = policy.spacing.map_or(Timestamp::MIN, |gap| gained_at.plus(gap));
        let (spacing, floor) = match crate::plant::active("ignore-spacing") {
            true => (None, Timestamp::MIN),
            false => (policy.spacing, floor),
        };
        let probing = queue.health.is_probing(policy.breaker.as_ref());
        let Some((work, start)) = queue.take(now, spacing, floor, probing) else { return };
        let late = queue.held(&work, start, policy, self.parts.around.hold.ended(), now);
        let fence = Fence { shard, epoch, node: self.parts.node };
        let began = view.subscription.stops.shifted(work.delivery.budget_began, now);
        if policy.schedule.outlives(began, now) {
            self.left_window(&work);
            self.expire(work, policy, fence, now);
            return;
        }
        self.held.busy(shard, 1);
        if self.parts.catalog.has_paces()
            && let Some(per_second) = self.parts.catalog.deliveries_per_second(tenant)
        {
            self.paces.take(tenant, per_second, now);
        }
        queue.in_flight += 1;
        queue.health.take_slot(&policy.limits, now);
        let class = queue.class(now);
        self.pressure.began(class == Class::Failing, now);
        let slot = self.slots.take(tenant, class, now);
        queue.begun.push_back(self.slots.since(slot));
        queue.occupy(&work);
        self.left_window(&work);
        let lag = now.since(work.delivery.due_at);
        ::metrics::histogram!(metrics::LAG_SECONDS).record(lag.as_millis() as f64 / 1_000.0);
        let (view, policy) = (Arc::clone(view), Arc::clone(policy));
        let durable = policy.lease.durable;
        let needs = Needs::Lease(self.parts.term.losses());
        let (held, made) = (late, Instant::now());
        let job = Job { work, view, policy, fence, slot, needs, held, made };
        if crate::plant::active("no-claim") {
            self.launch(job);
            return;
        }
        if durable {
            self.claims.push(job);
        } else {
            self.launch(job);
        }
    }

    /// Has a subscription wait whose tenant has used up its pace, or of which others waited before.
    fn is_paced(&mut self, id: SubscriptionId, tenant: TenantId, now: Timestamp) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else { return true };
        let newcomer = !std::mem::take(&mut queue.has_pace);
        if self.parts.catalog.deliveries_per_second(tenant).is_none() {
            return false;
        }
        let slot = self.paces.slot(tenant);
        if slot <= now && !(newcomer && self.paces.is_waited_for(tenant)) {
            return false;
        }
        queue.awaits_pace = true;
        queue.stop(Waiting::until(WaitReason::TenantRate, slot), now);
        self.paces.wait(tenant, id);
        true
    }

    /// Lets those queue up for a turn who waited for the pace of their tenant, as many as it allows now.
    pub(super) fn go_on_at_pace(&mut self, now: Timestamp) {
        if self.paces.next_wake().is_none() {
            return;
        }
        let catalog = Arc::clone(&self.parts.catalog);
        for id in self.paces.ready(now, |tenant| catalog.deliveries_per_second(tenant)) {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.awaits_pace = false;
                queue.has_pace = true;
            }
            self.evaluate_at(id, now);
        }
    }

    fn waiting_for(&mut self, class: Class) -> &mut Ring {
        match class {
            Class::Quick => &mut self.waiting_quick,
            Class::Slow => &mut self.waiting_slow,
            Class::Failing => &mut self.waiting_failing,
        }
    }

    /// Lets as many of those who wait for a slot queue up for a turn as there are slots for, and of each
    /// tenant as many as it may have.
    fn give_free_slots(&mut self, now: Timestamp) {
        for class in [Class::Failing, Class::Slow, Class::Quick] {
            let mut room = self.slots.room(class);
            if class == Class::Failing {
                room = room.min(self.pressure.room(now));
            }
            let mut left: Map<TenantId, usize> = Map::default();
            while room > 0 {
                let (slots, waiting) = match class {
                    Class::Quick => (&self.slots, &mut self.waiting_quick),
                    Class::Slow => (&self.slots, &mut self.waiting_slow),
                    Class::Failing => (&self.slots, &mut self.waiting_failing),
                };
                let may = |tenant| {
                    left.get(&tenant).copied().unwrap_or_default() < slots.room_of(tenant, class)
                };
                let Some((tenant, id)) = waiting.pop_of(may) else { break };
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.awaits_slot = false;
                }
                self.evaluate_at(id, now);
                // Whoever was held back or has gone passes its place on.
                if self.queues.get(&id).is_some_and(|queue| queue.in_ring) {
                    room -= 1;
                    *left.entry(tenant).or_default() += 1;
                }
            }
        }
    }

    pub(super) fn launch(&mut self, mut job: Job) {
        job.made = Instant::now();
        let around = Arc::clone(&self.parts.around);
        self.tasks
            .spawn(async move { TaskOutput::Done(Box::new(attempt::run(around, job).await)) });
    }
}

/// How many attempts of a subscription that are younger than a second may be under way. While much of
/// what its tenant has under way is late, a receiver that has not earned more gets the least.
pub(super) fn at_once(queue: &Queue, slots: &Slots, tenant: TenantId, limits: &Limits) -> u32 {
    let limit = queue.health.limit(limits);
    if queue.health.is_unproven() && slots.is_strained(tenant) {
        limit.min(STRAINED_AT_ONCE)
    } else {
        limit
    }
}
