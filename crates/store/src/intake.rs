//! Accepting events.

use std::sync::Arc;

use posthorn_domain::{
    CatalogVersion, DeliveryId, Event, EventId, Idempotency, Lane, SubscriptionId, Timestamp,
};

/// An event with the plan of its deliveries.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The event; shared, since the same value goes on to the scheduler without a copy.
    pub event: Arc<Event>,
    /// The publisher's protection against publishing twice.
    pub idempotency: Option<Idempotency>,
    /// The version of the tenant's catalog the plan was made on.
    pub catalog: CatalogVersion,
    /// One for each matching subscription.
    pub deliveries: Vec<NewDelivery>,
}

/// One delivery to be made.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// To whom.
    pub subscription: SubscriptionId,
    /// Its lane, when the subscription's policy orders.
    pub lane: Option<Lane>,
    /// When the first attempt may start.
    pub due_at: Timestamp,
}

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is stored, with all its deliveries in the order of the plan.
    Stored(Vec<Placed>),
    /// It was published before under the same key with the same contents.
    Duplicate {
        /// The event that was stored then.
        event: EventId,
    },
    /// The key was used before for other contents.
    Conflict {
        /// The event that was stored then.
        event: EventId,
    },
    /// The plan is older than the catalog: load what changed, plan again.
    Stale,
}

/// Where a stored delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its place in commit order.
    pub seq: u64,
    /// Whether it waits for others of its lane, or for the time at which it enters it.
    pub parked: bool,
}
