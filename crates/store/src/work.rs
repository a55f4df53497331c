//! Deliveries under way.

use std::sync::Arc;

use posthorn_domain::delivery::Step;
use posthorn_domain::{
    Attempt, CatalogVersion, Delivery, DeliveryId, Event, Fence, RedriveState, SubscriptionId,
    TenantId, Timestamp,
};

use crate::NewEvent;

/// A delivery together with what is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The obligation.
    pub delivery: Delivery,
    /// The event; shared between all deliveries of it that were read together.
    pub event: Arc<Event>,
}

/// A subscription with work that is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueSubscription {
    /// Which.
    pub subscription: SubscriptionId,
    /// When its earliest delivery is due.
    pub due_at: Timestamp,
}

/// A question for work of one subscription.
#[derive(Clone, Copy, Debug)]
pub struct PendingAsk {
    /// Whose.
    pub subscription: SubscriptionId,
    /// Due at or after this time.
    pub from: Timestamp,
    /// Due at or before this time.
    pub until: Timestamp,
    /// At most so many.
    pub limit: usize,
}

/// A lease to be written down before an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Who writes.
    pub fence: Fence,
    /// Which delivery.
    pub delivery: DeliveryId,
    /// The attempts it has according to the writer.
    pub expected_attempts: u32,
    /// The revival it has according to the writer.
    pub expected_revival: u32,
    /// Until when nobody else may try.
    pub until: Timestamp,
}

/// What became of a delivery.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who writes.
    pub fence: Fence,
    /// Whose delivery.
    pub tenant: TenantId,
    /// Which delivery.
    pub delivery: DeliveryId,
    /// The attempts it had, according to the writer, before this one.
    pub expected_attempts: u32,
    /// The revival it has according to the writer.
    pub expected_revival: u32,
    /// Whether it has a lane. Of one that can be attempted that never changes, so a store may leave lanes alone where
    /// there are none. Who does not know says that it has one.
    pub ordered: bool,
    /// The decision of the state machine.
    pub step: Step,
    /// The attempt, when one was made.
    pub attempt: Option<Attempt>,
    /// What it changes in what is written down about its receiver. Unlike the rest it is written
    /// whenever the fence holds: it is true whatever became of the delivery. A second word about a
    /// receiver is not sent before the first is answered, so that a repeat of the first cannot undo it.
    pub standing: Option<Standing>,
    /// What is told of it, nearly always nothing. Without keys: the item is written once.
    pub told: Vec<NewEvent>,
    /// When it happened.
    pub at: Timestamp,
}

/// How a receiver stands from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whose receiver.
    pub subscription: SubscriptionId,
    /// It has only failed since then; `None` when it had a success. Of two that say since when, the
    /// earlier counts.
    pub failing: Option<Streak>,
}

/// A time in which a receiver has only failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    /// Since when.
    pub since: Timestamp,
    /// Whether a delivery was exhausted in it.
    pub exhausted: bool,
    /// Whether it has lasted long enough to be told.
    pub told: bool,
}

impl Streak {
    /// What two reports of the same trouble say together.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self {
            since: self.since.min(other.since),
            exhausted: self.exhausted || other.exhausted,
            told: self.told || other.told,
        }
    }
}

/// A subscription whose receiver has only failed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingSubscription {
    /// Which.
    pub subscription: SubscriptionId,
    /// Since when.
    pub streak: Streak,
}

/// What a store answers to a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is written; the next of the lane, if one was promoted, comes along.
    Written {
        /// The new head of the lane, due now.
        promoted: Option<Work>,
    },
    /// The shard has another owner or epoch. Nothing changed. A lease that has run out is no reason: until somebody
    /// takes the shard, its last owner may say what became of the attempts that it made.
    Fenced,
    /// The delivery has ended or moved on meanwhile. Nothing changed.
    Superseded,
    /// What it tells was planned on another version of a catalog. Nothing changed, and nothing is kept.
    Stale,
}

/// What a cancel or a retry by hand led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The delivery as it is now.
    pub delivery: Delivery,
    /// Work that is now due because of it: the delivery itself, or the new head of its lane.
    pub ready: Option<Work>,
    /// The catalog version with which nodes hear of it, when one of them may hold an older copy of this
    /// delivery, or of one that has to wait for it now.
    pub recall: Option<CatalogVersion>,
}

/// What one bite of a redrive did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// How many were put back.
    pub moved: usize,
    /// Whose they are, without repetition; their work is due now.
    pub subscriptions: Vec<SubscriptionId>,
    /// Where the redrive stands.
    pub state: RedriveState,
    /// The catalog version with which nodes hear of those that have to wait now.
    pub recall: Option<CatalogVersion>,
}

/// Who entered lanes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Entered {
    /// Whose deliveries, without repetition; some of them may be due now.
    pub subscriptions: Vec<SubscriptionId>,
    /// Whether there may be more.
    pub more: bool,
}

/// What one sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// How many deliveries were cancelled.
    pub cancelled: usize,
    /// Whether there may be more.
    pub more: bool,
}
