//! Following the log: what was committed, in an order that never changes behind the reader.

use posthorn_domain::{DeliveryState, TenantId};

use crate::{AttemptLine, Place};

/// What of the log is wanted.
#[derive(Clone, Debug)]
pub struct FollowAsk {
    /// Only of these tenants.
    pub tenants: Vec<TenantId>,
    /// Only what comes after this place. Without it, nothing but where the log ends now: behind all that was
    /// ever shown. What was committed a moment ago may still come.
    pub after: Option<Place>,
    /// At most so many.
    pub limit: usize,
}

/// The next part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed<T> {
    /// In the order of the log.
    pub items: Vec<FollowedItem<T>>,
    /// Where to go on: not before the last item.
    pub last: Place,
    /// Whether there may be more already.
    pub more: bool,
}

/// One item of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedItem<T> {
    /// Whose.
    pub tenant: TenantId,
    /// Where it stands. Greater than those of all items before it.
    pub place: Place,
    /// What it is.
    pub item: T,
}

/// An attempt, and what it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptMade {
    /// The attempt.
    pub line: AttemptLine,
    /// The state of its delivery when the log was read; mostly what the attempt led to.
    pub state: DeliveryState,
}
