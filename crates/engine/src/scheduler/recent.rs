//! What was attempted a moment ago although its hand-over is perhaps still on its way.
//!
//! A commit is visible in the store before its reply has reached this process. In between, a refill
//! may have read the delivery and an attempt may have ended it; the hand-over that comes with the
//! reply is then old news and must not be attempted again.

use std::collections::VecDeque;

use posthorn_domain::{Delivery, DeliveryId, Span, Timestamp};

use crate::catalog::Map;

/// How long is remembered. Replies of the store that are later are not believed.
const REPLY_MAX: Span = Span::from_secs(60);

/// Deliveries that were read, attempted and recorded within the last seconds.
#[derive(Default)]
pub(super) struct Recent {
    /// With the revival that was attempted: a retry by hand begins another.
    revivals: Map<DeliveryId, u32>,
    order: VecDeque<(Timestamp, DeliveryId)>,
}

impl Recent {
    /// Whether a delivery that was just read may still be handed over. One of a lane may have been
    /// tried before: whoever had to let another go first gets its turn later.
    pub(super) fn concerns(delivery: &Delivery, now: Timestamp) -> bool {
        let handed = delivery.spent() == 0 || delivery.lane.is_some();
        handed && Self::reaches_back_to(delivery, now)
    }

    /// Whether an attempt of a delivery that is handed over now would still be known here.
    pub(super) fn reaches_back_to(delivery: &Delivery, now: Timestamp) -> bool {
        delivery.due_at.plus(REPLY_MAX) > now
    }

    pub(super) fn note(&mut self, delivery: &Delivery, now: Timestamp) {
        while self.order.front().is_some_and(|(at, _)| at.plus(REPLY_MAX) <= now) {
            if let Some((_, id)) = self.order.pop_front() {
                self.revivals.remove(&id);
            }
        }
        self.order.push_back((now, delivery.id));
        self.revivals.insert(delivery.id, delivery.revival);
    }

    /// The clock was set back: nothing can have been noted in the future.
    pub(super) fn at_most(&mut self, now: Timestamp) {
        self.order.iter_mut().for_each(|(at, _)| *at = (*at).min(now));
    }

    /// Whether a hand-over is old news.
    pub(super) fn has(&self, delivery: &Delivery) -> bool {
        self.revivals.get(&delivery.id).is_some_and(|revival| *revival >= delivery.revival)
    }
}
