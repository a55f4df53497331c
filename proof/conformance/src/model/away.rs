//! Handles on the model, and what tests do to all of them: it is away for a while, answers late, or something happens
//! before a bite.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::NodeId;
use posthorn_store::{Error, Membership, Result};

use super::{BeforeBite, Inbox, ModelStore};

/// How well the store can be reached.
#[derive(Default)]
pub(super) struct Reach {
    away: AtomicBool,
    late: Mutex<Option<Duration>>,
    blind: AtomicBool,
    broken: AtomicBool,
    farewell: Mutex<Option<Duration>>,
}

impl ModelStore {
    /// Makes leases, publishes, work and outcomes fail on all handles until it is called off, as while a database is
    /// away.
    pub fn set_away(&self, away: bool) {
        self.shared.reach.away.store(away, Ordering::Relaxed);
    }

    /// Has publishers hear so much later of what was stored, on all handles.
    pub fn set_late(&self, late: Option<Duration>) {
        *self.shared.reach.late.lock() = late;
    }

    /// Has heartbeats be answered as if all leases had run out between their renewal and the look at who holds what.
    pub fn set_blind(&self, blind: bool) {
        self.shared.reach.blind.store(blind, Ordering::Relaxed);
    }

    /// Makes the same fail as while it is away, but for good, as after an error of its disk.
    pub fn set_broken(&self) {
        self.shared.reach.broken.store(true, Ordering::Relaxed);
    }

    /// Has nodes that leave hear so much later that they have left.
    pub fn set_slow_farewell(&self, late: Duration) {
        *self.shared.reach.farewell.lock() = Some(late);
    }

    pub(super) async fn farewell(&self, node: NodeId) {
        self.shared.state.lock().leases.depart(node);
        let late = *self.shared.reach.farewell.lock();
        if let Some(late) = late {
            tokio::time::sleep(late).await;
        }
    }

    pub(super) fn looked(&self, mut members: Membership) -> Membership {
        if self.shared.reach.blind.load(Ordering::Relaxed) {
            members.holders.clear();
        }
        members
    }

    pub(super) async fn come_late(&self) {
        let late = *self.shared.reach.late.lock();
        if let Some(late) = late {
            tokio::time::sleep(late).await;
        }
    }

    pub(super) fn reach(&self) -> Result<()> {
        if self.shared.reach.broken.load(Ordering::Relaxed) {
            return Err(Error::fatal("reach the store", "it is broken"));
        }
        match self.shared.reach.away.load(Ordering::Relaxed) {
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
