//! Who wants to know how deliveries end: a stream that anybody may follow.
//!
//! It is for figures and hints, not for truth: it is bounded, and whoever reads too slowly misses
//! some, which is counted. What became of a delivery for certain is in the store. Each node tells of
//! the deliveries it ended itself by an attempt, or by giving up.

use std::sync::Arc;

use posthorn_domain::{
    DeliveryId, DeliveryState, EventId, EventType, Span, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{Record, Work};
use tokio::sync::broadcast;

use crate::failure_log::FailureLog;
use crate::metrics;

/// Ends that are kept for a reader who is behind.
const BACKLOG: usize = 1_024;

/// A delivery that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedDelivery {
    /// Which.
    pub delivery: DeliveryId,
    /// Of which event.
    pub event: EventId,
    /// What had happened.
    pub event_type: EventType,
    /// Whose.
    pub tenant: TenantId,
    /// To whom.
    pub subscription: SubscriptionId,
    /// How it ended.
    pub state: DeliveryState,
    /// Attempts of this budget, the last one included.
    pub spent: u32,
    /// How long the last attempt took, when one was made.
    pub took: Option<Span>,
    /// When this budget began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// The side that tells.
#[derive(Clone)]
pub(crate) struct Outcomes {
    ends: broadcast::Sender<EndedDelivery>,
    /// What the log says of those that failed.
    pub(crate) failures: Arc<FailureLog>,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { ends: broadcast::channel(BACKLOG).0, failures: Arc::default() }
    }
}

impl Outcomes {
    pub(crate) fn follow(&self) -> OutcomeStream {
        OutcomeStream(self.ends.subscribe())
    }

    /// Tells those who listen, if the record was the end.
    pub(crate) fn tell(&self, work: &Work, record: &Record) {
        if !record.step.state.is_terminal() || self.ends.receiver_count() == 0 {
            return;
        }
        let delivery = &work.delivery;
        let ended = EndedDelivery {
            delivery: delivery.id,
            event: delivery.event,
            event_type: work.event.event_type.clone(),
            tenant: delivery.tenant,
            subscription: delivery.subscription,
            state: record.step.state,
            spent: delivery.spent() + u32::from(record.step.charge),
            took: record.attempt.as_ref().map(|attempt| attempt.took),
            began_at: delivery.budget_began,
            ended_at: record.at,
        };
        // Nobody left to hear it is fine.
        let _ = self.ends.send(ended);
    }
}

/// Deliveries as they end, from now on.
pub struct OutcomeStream(broadcast::Receiver<EndedDelivery>);

impl OutcomeStream {
    /// The next one that was told already, if any.
    pub fn try_next(&mut self) -> Option<EndedDelivery> {
        loop {
            match self.0.try_recv() {
                Ok(ended) => return Some(ended),
                Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                    ::metrics::counter!(metrics::OUTCOMES_MISSED).increment(missed);
                }
                Err(_) => return None,
            }
        }
    }

    /// The next one; `None` once the engine is gone. What was missed in between is counted in
    /// [`metrics::OUTCOMES_MISSED`].
    pub async fn next(&mut self) -> Option<EndedDelivery> {
        loop {
            match self.0.recv().await {
                Ok(ended) => return Some(ended),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    ::metrics::counter!(metrics::OUTCOMES_MISSED).increment(missed);
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
