//! Why deliveries wait, as their owner sees it.

use posthorn_domain::policy::Policy;
use posthorn_domain::{
    Delivery, DeliveryId, Shard, SubscriptionId, Timestamp, WaitReason, Waiting,
};
use tokio::sync::oneshot;

use super::queue::{Place, Queue};
use super::slots::Class;
use super::{Scheduler, at_once};

/// A delivery somebody asks about, as the store has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) delivery: DeliveryId,
    pub(crate) subscription: SubscriptionId,
    pub(crate) due_at: Timestamp,
    pub(crate) seq: u64,
}

impl From<&Delivery> for Asked {
    fn from(delivery: &Delivery) -> Self {
        Self {
            delivery: delivery.id,
            subscription: delivery.subscription,
            due_at: delivery.due_at,
            seq: delivery.seq,
        }
    }
}

/// What the owner of a delivery knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// An attempt is under way, or its outcome is being written.
    UnderWay,
    /// It waits.
    Waits(Waiting),
    /// Nothing that the store does not know.
    Unknown,
}

/// What the owner of a subscription knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionState {
    /// What keeps its due deliveries from being attempted.
    pub waiting: Option<Waiting>,
    /// Since when its receiver has only failed.
    pub failing_since: Option<Timestamp>,
    /// Attempts under way.
    pub in_flight: u32,
}

/// A question about many deliveries at once.
pub(crate) type Waits = (Vec<Asked>, oneshot::Sender<Vec<Live>>);

impl Scheduler {
    /// Answers for each of them.
    pub(super) fn answer_waits(&self, (asked, answer): Waits) {
        let now = self.parts.clock.now();
        let _ = answer.send(asked.iter().map(|asked| self.live(asked, now)).collect());
    }

    /// What of these subscriptions is under way on this node, at most so many.
    pub(super) fn under_way(&self, of: &[SubscriptionId], most: usize) -> Vec<DeliveryId> {
        let queues = of.iter().filter_map(|id| self.queues.get(id));
        let busy = queues.filter(|queue| queue.in_flight > 0);
        busy.flat_map(Queue::under_way).take(most).collect()
    }

    fn live(&self, asked: &Asked, now: Timestamp) -> Live {
        let id = asked.subscription;
        if self.held.usable(Shard::of(id)).is_none() {
            return Live::Unknown;
        }
        let (Some(queue), Some(view)) = (self.queues.get(&id), self.parts.catalog.view(id)) else {
            return Live::Unknown;
        };
        let (true, Ok(policy)) = (view.subscription.status.is_active(), &view.policy) else {
            return Live::Unknown;
        };
        let place = queue.place(asked.delivery, (asked.due_at, asked.seq));
        let (start, known) = match place {
            Place::UnderWay => return Live::UnderWay,
            Place::Behind => return Live::Waits(Waiting::on(WaitReason::Lane)),
            Place::Queued(start) => (start, true),
            Place::Unknown if asked.due_at == Timestamp::MAX => return Live::Unknown,
            Place::Unknown => (asked.due_at, false),
        };
        let health = &queue.health;
        let held = health.held_until();
        if held > now && held > start {
            return Live::Waits(Waiting::until(health.held_by().reason(), held));
        }
        if start > now {
            let reason = match () {
                () if queue.is_gated(asked.delivery) => WaitReason::Gate,
                () if start > asked.due_at && policy.spacing.is_some() => WaitReason::Spacing,
                () if !known => return Live::Unknown,
                () => WaitReason::Schedule,
            };
            return Live::Waits(Waiting::until(reason, start));
        }
        if let Some(waiting) = self.due_waits(queue, view.subscription.tenant, policy, now) {
            return Live::Waits(waiting);
        }
        // Due, and nothing holds its subscription: it is its turn, or others of its own go first.
        match known {
            true => Live::Waits(Waiting::until(WaitReason::Schedule, start)),
            false => Live::Waits(Waiting::on(WaitReason::Concurrency)),
        }
    }

    /// What keeps the due deliveries of a subscription from being attempted.
    fn due_waits(
        &self,
        queue: &Queue,
        tenant: posthorn_domain::TenantId,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Waiting> {
        if self.parts.around.hold.is_on() {
            return Some(Waiting::on(WaitReason::Hold));
        }
        let health = &queue.health;
        if health.held_until() > now {
            return Some(Waiting::until(health.held_by().reason(), health.held_until()));
        }
        let rate = health.rate_slot(&policy.limits);
        if rate > now {
            return Some(Waiting::until(WaitReason::Rate, rate));
        }
        if queue.awaits_pace {
            return Some(Waiting::until(WaitReason::TenantRate, self.paces.slot(tenant)));
        }
        let limit = at_once(queue, &self.slots, tenant, &policy.limits);
        let crowded = queue.crowded(policy, limit, now);
        // Whose turn it would be waits in the ring while all slots are taken.
        let turn = queue.in_ring && !self.slots.has_room(Class::Quick);
        crowded.or_else(|| (queue.awaits_slot || turn).then_some(Waiting::on(WaitReason::Quota)))
    }

    /// How a subscription stands, if it is this node's.
    pub(super) fn state_of(&self, id: SubscriptionId) -> SubscriptionState {
        let now = self.parts.clock.now();
        let failing_since = self.streaks.since(id);
        let (Some(queue), Some(view)) = (self.queues.get(&id), self.parts.catalog.view(id)) else {
            return SubscriptionState { failing_since, ..SubscriptionState::default() };
        };
        let waiting = match &view.policy {
            Ok(policy) if view.subscription.status.is_active() => {
                self.due_waits(queue, view.subscription.tenant, policy, now)
            }
            _ => None,
        };
        SubscriptionState { waiting, failing_since, in_flight: queue.in_flight }
    }
}
