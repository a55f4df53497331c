//! How one subscription stands, as its owner sees it: what its breaker, its concurrency and its rate do.

use posthorn_domain::policy::Policy;
use posthorn_domain::{Shard, SubscriptionId, Timestamp, WaitReason};

use super::health::Health;
use super::queue::Queue;
use super::waits::SubscriptionState;
use super::{Scheduler, at_once};

/// What a breaker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// It lets everything through.
    Closed,
    /// It lets nothing through until then.
    Open(Timestamp),
    /// It lets one attempt at a time through, to see whether the receiver works again.
    Probing,
}

/// What the owner of a subscription knows of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveState {
    /// What its due deliveries wait for, since when it fails, what is under way.
    pub state: SubscriptionState,
    /// What the breaker does.
    pub breaker: BreakerState,
    /// How many attempts may begin at once now.
    pub at_once: u32,
    /// When the rate allows the next attempt; `None` when it allows one now.
    pub next_slot: Option<Timestamp>,
    /// The earliest due time that is known in memory.
    pub due_at: Option<Timestamp>,
}

impl Scheduler {
    /// How a subscription stands; `None` when it is another node's, or has no policy to go by.
    pub(super) fn report(&self, id: SubscriptionId) -> Option<LiveState> {
        self.held.usable(Shard::of(id))?;
        let view = self.parts.catalog.view(id)?;
        let policy = view.policy.as_ref().ok()?;
        let now = self.parts.clock.now();
        let idle = Queue::default();
        let queue = self.queues.get(&id).unwrap_or(&idle);
        let next_slot = queue.health.rate_slot(&policy.limits);
        let due = [queue.head(), queue.on_disk];
        Some(LiveState {
            state: self.state_of(id),
            breaker: breaker(&queue.health, policy, now),
            at_once: at_once(queue, &self.slots, view.subscription.tenant, &policy.limits),
            next_slot: Some(next_slot).filter(|at| *at > now),
            due_at: due.into_iter().flatten().min(),
        })
    }
}

impl Scheduler {
    /// The earliest due time that is known in memory, of all subscriptions that attempt anything. Looks at each that has
    /// work: asked by people who look at a page, not for each delivery.
    pub(super) fn oldest_due(&self) -> Option<Timestamp> {
        let goes = |id: SubscriptionId| {
            self.held.usable(Shard::of(id)).is_some()
                && self
                    .parts
                    .catalog
                    .view(id)
                    .is_some_and(|view| view.subscription.status.is_active())
        };
        let due = self.queues.iter().filter_map(|(id, queue)| {
            let first = [queue.head(), queue.on_disk].into_iter().flatten().min()?;
            goes(*id).then_some(first)
        });
        due.min()
    }
}

/// What waits for a breaker is behind one, whether slow failures or a missing token opened it.
fn breaker(health: &Health, policy: &Policy, now: Timestamp) -> BreakerState {
    let held = health.held_until();
    if held > now && health.held_by().reason() == WaitReason::Breaker {
        BreakerState::Open(held)
    } else if health.is_probing(policy.breaker.as_ref()) {
        BreakerState::Probing
    } else {
        BreakerState::Closed
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Span;
    use posthorn_domain::policy::{Breaker, profiles};

    use super::super::health::{HeldBy, Sign};
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_breaker_opens_probes_and_closes() {
        let breaks = Breaker { open_after: 1, longest: Span::from_secs(300) };
        let policy = Policy { breaker: Some(breaks), ..profiles::default_profile() };
        let mut health = Health::default();
        assert_eq!(breaker(&health, &policy, at(0)), BreakerState::Closed);
        let slow = Span::from_secs(1);
        health.note(Sign::Bad, slow, policy.breaker.as_ref(), &policy.limits, at(5_000));
        assert_eq!(breaker(&health, &policy, at(5_500)), BreakerState::Open(at(6_000)));
        assert_eq!(breaker(&health, &policy, at(6_000)), BreakerState::Probing);
        health.note(Sign::Good, slow, policy.breaker.as_ref(), &policy.limits, at(6_100));
        assert_eq!(breaker(&health, &policy, at(6_200)), BreakerState::Closed);
        // What the receiver asked for is no breaker; what every attempt lacks is like one.
        health.hold(at(7_000), HeldBy::RetryAfter);
        assert_eq!(breaker(&health, &policy, at(6_500)), BreakerState::Closed);
        health.hold(at(8_000), HeldBy::Want);
        assert_eq!(breaker(&health, &policy, at(7_500)), BreakerState::Open(at(8_000)));
    }
}
