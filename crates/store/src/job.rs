//! Jobs: bulk work on the history, bite by bite.

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    CatalogVersion, DeliveryFilter, DeliveryId, EventId, JobId, JobState, Lane, ReplayStatus,
    SubscriptionId, Timestamp,
};

use crate::{NewEvent, Place};

/// What one bite of a job does.
#[derive(Clone, Debug)]
pub struct Bite {
    /// Whose.
    pub job: JobId,
    /// Where the job stood when the bite was prepared. When it stands elsewhere by now, another node was
    /// faster, and nothing is done.
    pub expected: Option<Place>,
    /// Where it stands afterwards.
    pub cursor: Option<Place>,
    /// Events that were looked at for it.
    pub seen: u64,
    /// What it delivers.
    pub deeds: Vec<Redelivery>,
    /// What it removes.
    pub expunges: Option<Expunges>,
    /// What it cancels or forgets.
    pub moves: Option<Moves>,
    /// About how many rows of a tenant that is being deleted it removes, whatever they are. First all its
    /// subscriptions are deleted and its other jobs stopped; then its events go with all that belongs to them, then what
    /// is left (sessions of pages too), and of its lines in the audit log all but the one that says that it was deleted. One
    /// event goes whole, so
    /// that a bite may be larger. When there is nothing left, the tenant is buried
    /// ([`CatalogChange::BuryTenant`](crate::CatalogChange::BuryTenant)) and the job is done. Where that is told
    /// (`ending`), it is done by a bite that found nothing to remove.
    pub removes: Option<usize>,
    /// How it ends, when it does with this bite.
    pub ends: Option<JobState>,
    /// What is told of that. Only where the bite does nothing else: what is told is the whole of it. Of a bite that
    /// removes and does not end its job, it is passed over.
    pub ending: Option<Ending>,
    /// Why it cannot go on, when it ends so.
    pub problem: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// What is told of the end of a job or a redrive.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The events, with their plans.
    pub told: Vec<NewEvent>,
    /// What the job had looked at when they were made; of a redrive, how many it is about.
    pub seen: u64,
    /// What it had done. When it has done more, or looked at more, meanwhile, what would be told is not true any more:
    /// nothing is changed, and the answer is [`Refusal::Stale`](crate::Refusal::Stale).
    pub done: u64,
}

/// An event for a subscription, once more or for the first time. What becomes of it is decided by
/// [`ReplayStatus::decide`] in the transaction that does it, so that nothing is made twice.
#[derive(Clone, Debug)]
pub struct Redelivery {
    /// Which event.
    pub event: EventId,
    /// To whom. Nothing is done for one that is gone.
    pub subscription: SubscriptionId,
    /// The id of the delivery, should one be made.
    pub id: DeliveryId,
    /// Its lane, when the subscription's policy orders. One that is made comes last in it.
    pub lane: Option<Lane>,
    /// When it is wanted.
    pub status: ReplayStatus,
}

/// Events whose payloads a bite removes, as with [`crate::Store::expunge_event`]. Those with deliveries that have
/// not ended are passed over.
#[derive(Clone, Debug, Default)]
pub struct Expunges {
    /// Which.
    pub events: Vec<EventId>,
    /// Whether what receivers answered goes as well.
    pub responses: bool,
}

/// Deliveries that a bite cancels, forgets or tries again, each as with [`crate::Store::move_delivery`]. What does not match the filter in
/// the transaction that does it, and what is refused, is passed over: somebody else was faster.
#[derive(Clone, Debug)]
pub struct Moves {
    /// What is wanted of them.
    pub wish: Wish,
    /// What they must still be.
    pub filter: DeliveryFilter,
    /// Which.
    pub deliveries: Vec<DeliveryId>,
}

/// What a bite did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitten {
    /// Deliveries that were made, tried again, cancelled or forgotten, events of which something was removed, or rows that
    /// went with their tenant; none when another node was faster.
    pub done: usize,
    /// Whose they are, without repetition; their work is due now. Of what was cancelled or forgotten: of whom others go on. Of what was tried
    /// again: of whom something is due now.
    pub subscriptions: Vec<SubscriptionId>,
    /// Where the job stands.
    pub state: JobState,
    /// The catalog version with which nodes hear of those that have to wait now, or that a tenant is buried.
    pub recall: Option<CatalogVersion>,
}
