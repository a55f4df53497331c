//! Following the log: what was committed, in an order that never changes behind the reader.

use posthorn_domain::{DeliveryState, Event, TenantId, Timestamp};

use crate::AttemptLine;

/// Where an item stands in the log. Only the store that gave it out knows what it means; every value is allowed, and
/// at worst is the place of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// What it was committed with, in a store that has no numbers in the order of commits.
    pub commit: u64,
    /// What comes before what of the same commit.
    pub row: u128,
}

/// What of the log is wanted.
#[derive(Clone, Debug)]
pub struct FollowAsk {
    /// Only of these tenants.
    pub tenants: Vec<TenantId>,
    /// Only what comes after this place. Without it, nothing but where the log ends now: behind all that was
    /// ever shown. What was committed a moment ago may still come.
    pub after: Option<LogPlace>,
    /// Whoever stands before the first item of about this time goes on there, and is told that it skipped what is
    /// older.
    pub since: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
}

/// The next part of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed<T> {
    /// In the order of the log.
    pub items: Vec<FollowedItem<T>>,
    /// Where to go on: not before the last item.
    pub last: LogPlace,
    /// Whether there may be more already.
    pub more: bool,
    /// Whether something was passed over for its age.
    pub skipped: bool,
}

/// One item of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedItem<T> {
    /// Whose.
    pub tenant: TenantId,
    /// Where it stands. Greater than those of all items before it.
    pub place: LogPlace,
    /// What it is.
    pub item: T,
}

/// An event without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// The event. Its payload is empty.
    pub event: Event,
    /// How large the payload is.
    pub payload_bytes: usize,
}

impl EventLine {
    /// What is left of an event without its payload.
    pub fn of(mut event: Event) -> Self {
        let payload_bytes = std::mem::take(&mut event.payload).len();
        Self { event, payload_bytes }
    }
}

/// An attempt without what was sent and answered, and what it led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptMade {
    /// The attempt. Its request and its response are empty.
    pub line: AttemptLine,
    /// The state of its delivery when the log was read; mostly what the attempt led to.
    pub state: DeliveryState,
}
