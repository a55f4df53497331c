//! A store that cannot be reached for a while.

use std::sync::atomic::Ordering;

use posthorn_store::{Error, Result};

use super::ModelStore;

impl ModelStore {
    /// Makes leases, publishes, work and outcomes fail on all handles until it is called off, as while a database is
    /// away.
    pub fn set_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
    }

    pub(super) fn reach(&self) -> Result<()> {
        match self.shared.away.load(Ordering::Relaxed) {
            true => Err(Error::unavailable("reach the store", "it is away")),
            false => Ok(()),
        }
    }
}
