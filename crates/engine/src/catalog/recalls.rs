//! Deliveries whose copies in memory are out of date: somebody cancelled, retried or forgot them by
//! hand, on whatever node, or brought back another one that has to go before them.
//!
//! An attempt looks here right before it sends, and a node says that it has seen a version of the
//! catalog only when all that it recalls is noted here. So once every living node has said so, nothing
//! is sent from an older copy any more, wherever that copy still lies. What it must not know: queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{Delivery, DeliveryId};
use posthorn_store::Recall;
use tokio::time::Instant;

use super::Map;

/// How long a recall is remembered: longer than a reply of the store, a gate and a token may take
/// together. Copies that wait are withdrawn when the recall comes in.
const KEPT: Duration = Duration::from_secs(600);

/// What was recalled lately.
#[derive(Default)]
pub(super) struct Recalls {
    /// Whether there is any, so that the usual attempt takes no lock.
    any: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Copies with a smaller revival are out of date; and when that was last said.
    revivals: Map<DeliveryId, (u32, Instant)>,
    order: VecDeque<(Instant, DeliveryId)>,
}

impl Noted {
    /// Forgets what was said too long ago to matter.
    fn age(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(at, _)| *at + KEPT <= now) {
            if let Some((at, id)) = self.order.pop_front()
                && self.revivals.get(&id).is_some_and(|(_, last)| *last == at)
            {
                self.revivals.remove(&id);
            }
        }
    }
}

impl Recalls {
    pub(super) fn note(&self, recalls: &[Recall]) {
        if recalls.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut noted = self.noted.lock();
        noted.age(now);
        for recall in recalls {
            let (least, last) = noted.revivals.entry(recall.delivery).or_insert((0, now));
            *least = recall.revival.max(*least);
            *last = now;
            noted.order.push_back((now, recall.delivery));
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether a copy is out of date.
    pub(super) fn concern(&self, copy: &Delivery) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut noted = self.noted.lock();
        noted.age(Instant::now());
        // Under the lock, as when something is noted.
        self.any.store(!noted.revivals.is_empty(), Ordering::Release);
        noted.revivals.get(&copy.id).is_some_and(|(least, _)| copy.revival < *least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::{DeliveryState, EventId, SubscriptionId, TenantId, Timestamp};

    fn copy(n: u128, revival: u32) -> Delivery {
        let now = Timestamp::from_millis(0);
        Delivery {
            id: DeliveryId::new(now, n),
            event: EventId::new(now, n),
            subscription: SubscriptionId::new(now, 1),
            tenant: TenantId::DEFAULT,
            lane: None,
            seq: 1,
            state: DeliveryState::Pending,
            due_at: now,
            attempts: 0,
            budget_base: 0,
            budget: posthorn_domain::Budget::Fresh,
            budget_began: now,
            revival,
            created_at: now,
            ended_at: None,
            last_outcome: None,
        }
    }

    fn recall(n: u128, revival: u32) -> Recall {
        let Delivery { subscription, id, .. } = copy(n, 0);
        Recall { subscription, delivery: id, revival }
    }

    #[tokio::test(start_paused = true)]
    async fn older_copies_are_out_of_date_for_a_while() {
        let recalls = Recalls::default();
        assert!(!recalls.concern(&copy(1, 0)));
        recalls.note(&[recall(1, 2)]);
        tokio::time::advance(KEPT / 2).await;
        recalls.note(&[recall(1, 1), recall(2, 1)]);
        for (n, revival, stale) in [(1, 1, true), (1, 2, false), (2, 0, true), (3, 0, false)] {
            assert_eq!(recalls.concern(&copy(n, revival)), stale, "{n} {revival}");
        }
        // Said again, so remembered from then on.
        tokio::time::advance(KEPT / 2).await;
        recalls.note(&[recall(3, 1)]);
        assert!(recalls.concern(&copy(1, 1)) && recalls.concern(&copy(2, 0)));
        tokio::time::advance(KEPT / 2).await;
        recalls.note(&[recall(3, 1)]);
        assert!(!recalls.concern(&copy(1, 1)) && !recalls.concern(&copy(2, 0)));
        assert!(recalls.concern(&copy(3, 0)));
        assert!(recalls.any.load(Ordering::Acquire));
        // Once all is forgotten, attempts take no lock again.
        tokio::time::advance(KEPT).await;
        assert!(!recalls.concern(&copy(3, 0)));
        assert!(!recalls.any.load(Ordering::Acquire));
        recalls.note(&[recall(3, 1)]);
        assert!(recalls.concern(&copy(3, 0)));
    }
}
