//! How long this process may rely on its leases.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Until when the leases on shards can be relied on, by this process's own clock.
#[derive(Clone, Default)]
pub(crate) struct LeaseTerm(Arc<Mutex<Term>>);

#[derive(Default)]
struct Term {
    until: Option<Instant>,
    /// How often shards were lost. What was begun before a loss may belong to somebody else now.
    losses: u64,
}

impl LeaseTerm {
    pub(crate) fn set(&self, until: Instant) {
        self.0.lock().until = Some(until);
    }

    /// Says that shards were lost; to be called before the term is set again.
    pub(crate) fn lost(&self) {
        self.0.lock().losses += 1;
    }

    pub(super) fn is_valid(&self) -> bool {
        self.0.lock().until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn losses(&self) -> u64 {
        self.0.lock().losses
    }

    /// Whether it is valid and nothing was lost since `losses` were counted.
    pub(crate) fn holds_since(&self, losses: u64) -> bool {
        self.is_valid() && self.losses() == losses
    }
}
