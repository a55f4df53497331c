//! Questions about the past and the present.

use posthorn_domain::{
    DeliveryId, DeliveryState, EventId, EventType, RedriveId, SubscriptionId, Timestamp, TopicName,
};

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only on this topic.
    pub topic: Option<TopicName>,
    /// Only of this type.
    pub event_type: Option<EventType>,
    /// Only older than this one.
    pub before: Option<EventId>,
    /// At most so many.
    pub limit: usize,
}

/// Which deliveries to list.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Only of this event.
    pub event: Option<EventId>,
    /// Only to this subscription.
    pub subscription: Option<SubscriptionId>,
    /// Only in this state.
    pub state: Option<StateKind>,
    /// Only older than this one.
    pub before: Option<DeliveryId>,
    /// At most so many.
    pub limit: usize,
}

/// A delivery state without its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Not ended (pending or in flight).
    Pending,
    /// Delivered.
    Delivered,
    /// A dead letter.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl StateKind {
    /// The kind of a state.
    pub const fn of(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending | DeliveryState::InFlight => Self::Pending,
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Dead(_) => Self::Dead,
            DeliveryState::Cancelled(_) => Self::Cancelled,
        }
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, newest first.
    pub items: Vec<T>,
    /// Whether older ones follow.
    pub more: bool,
}

/// Which redrives of a list.
#[derive(Clone, Copy, Debug)]
pub struct RedrivePage {
    /// Only those older than this one.
    pub before: Option<RedriveId>,
    /// At most so many.
    pub limit: usize,
}

/// How many there are. `accepted = pending + delivered + dead + cancelled`, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Events in the store.
    pub events: u64,
    /// Deliveries not ended.
    pub pending: u64,
    /// Delivered.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Cancelled; deliveries of deleted subscriptions count here even before they are swept.
    pub cancelled: u64,
}

impl Counts {
    /// All deliveries.
    pub const fn deliveries(&self) -> u64 {
        self.pending + self.delivered + self.dead + self.cancelled
    }
}

/// What may be removed.
#[derive(Clone, Copy, Debug)]
pub struct Prune {
    /// Events all of whose deliveries ended before this (events without deliveries: accepted before).
    pub ended_before: Timestamp,
    /// Dead letters must also have ended before this.
    pub dead_before: Timestamp,
    /// Idempotency keys of events accepted before this.
    pub keys_before: Timestamp,
    /// Recalls that were written before this.
    pub recalls_before: Timestamp,
    /// At most so many events in one go.
    pub limit: usize,
}

/// What was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Events, with their deliveries and attempts.
    pub events: usize,
    /// Idempotency keys.
    pub keys: usize,
    /// Redrives that ended before `ended_before`.
    pub redrives: usize,
    /// Whether there may be more.
    pub more: bool,
}
