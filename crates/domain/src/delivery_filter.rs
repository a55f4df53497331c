//! Which deliveries are meant: what a list is filtered by, and what a job is about.
//!
//! Jobs are stored with it, so its text must be read for ever; a condition that is not known is an error, because a job
//! without it would mean more than somebody asked for. It must not know how a store finds deliveries.

use serde::{Deserialize, Serialize};

use crate::{Delivery, DeliveryState, EventId, FailureCode, Outcome, SubscriptionId, Timestamp};

/// A period: from its beginning up to, but without, its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Period {
    /// Nothing before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Nothing at or after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Period {
    /// Whether every moment is part of it.
    pub const fn is_all(&self) -> bool {
        self.from.is_none() && self.until.is_none()
    }

    /// Whether a moment is part of it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
    }
}

/// Which outcomes of attempts are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeFilter {
    /// An answer with a status from here to there, both included.
    Status(u16, u16),
    /// No answer, for one of these reasons.
    Failures(Vec<FailureCode>),
}

impl OutcomeFilter {
    /// Whether an outcome is meant.
    pub fn wants(&self, outcome: Outcome) -> bool {
        match (self, outcome) {
            (Self::Status(first, last), Outcome::Status(status)) => {
                (*first..=*last).contains(&status)
            }
            (Self::Failures(codes), Outcome::Failure(code)) => codes.contains(&code),
            _ => false,
        }
    }
}

/// Which deliveries. What is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryFilter {
    /// Only of this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// Only to this subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionId>,
    /// Only in this state, whatever the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateKind>,
    /// Only in exactly this state, with its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exactly: Option<DeliveryState>,
    /// Only those whose last attempt that counted came to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeFilter>,
    /// Only created in this period.
    #[serde(default, skip_serializing_if = "Period::is_all")]
    pub created: Period,
}

impl DeliveryFilter {
    /// Whether every delivery is meant.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a delivery is meant, as readers see it.
    pub fn wants(&self, delivery: &Delivery) -> bool {
        self.event.is_none_or(|event| event == delivery.event)
            && self.subscription.is_none_or(|wanted| wanted == delivery.subscription)
            && self.wants_state(delivery.state)
            && self.wants_outcome(delivery.last_outcome)
            && self.created.contains(delivery.created_at)
    }

    /// Whether deliveries in this state are meant.
    pub fn wants_state(&self, state: DeliveryState) -> bool {
        self.state.is_none_or(|kind| kind.includes(state))
            && self.exactly.is_none_or(|exactly| exactly == state)
    }

    /// Whether deliveries whose last attempt came to this are meant.
    pub fn wants_outcome(&self, outcome: Option<Outcome>) -> bool {
        match (&self.outcome, outcome) {
            (None, _) => true,
            (Some(filter), Some(outcome)) => filter.wants(outcome),
            (Some(_), None) => false,
        }
    }
}

/// A delivery state without its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Not ended: waiting, or in flight.
    Pending,
    /// Not ended, and a written lease says that an attempt is under way.
    InFlight,
    /// Delivered.
    Delivered,
    /// A dead letter.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl StateKind {
    /// The kind of a state. Those in flight are pending.
    pub const fn of(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending | DeliveryState::InFlight => Self::Pending,
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Dead(_) => Self::Dead,
            DeliveryState::Cancelled(_) => Self::Cancelled,
        }
    }

    /// Whether a state is of this kind.
    pub fn includes(self, state: DeliveryState) -> bool {
        match self {
            Self::InFlight => state == DeliveryState::InFlight,
            kind => kind == Self::of(state),
        }
    }
}
