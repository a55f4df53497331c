//! Handles on the model, and what tests do to all of them: it is away for a while, or something happens before a bite.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use posthorn_store::{Error, Result};

use super::{BeforeBite, Inbox, ModelStore};

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

    /// Another node's handle on the same contents.
    pub fn peer(&self) -> Self {
        let inbox = Arc::new(Inbox::default());
        self.shared.listeners.lock().push(Arc::clone(&inbox));
        Self { shared: Arc::clone(&self.shared), inbox }
    }

    /// Has something happen before each bite of a job, on all handles.
    pub fn before_bites(&self, before: BeforeBite) {
        *self.shared.before_bites.lock() = Some(before);
    }
}
