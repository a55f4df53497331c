//! What all parts of one run share.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use posthorn_domain::{Clock, NodeId, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::clock::SimClock;
use super::dice::Dice;
use super::oracle::Oracle;
use super::plan::Plan;
use super::trace::Trace;

/// How often what breaks, right now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Store calls that fail with nothing done.
    pub(crate) unavailable: f64,
    /// Writes that are done, or not, without a reply.
    pub(crate) unknown: f64,
    /// Store calls, or replies, that take seconds.
    pub(crate) slow: f64,
    /// Hints to other nodes that get lost.
    pub(crate) hint_loss: f64,
    /// The store answers nobody.
    pub(crate) outage: bool,
    /// Receivers do whatever their mood is; otherwise all are well.
    pub(crate) moods: bool,
}

impl Faults {
    /// Nothing breaks.
    pub(crate) const NONE: Faults = Faults {
        unavailable: 0.0,
        unknown: 0.0,
        slow: 0.0,
        hint_loss: 0.0,
        outage: false,
        moods: false,
    };
}

/// One run.
pub(crate) struct World {
    pub(crate) clock: SimClock,
    pub(crate) plan: Plan,
    pub(crate) oracle: Mutex<Oracle>,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) store_dice: Mutex<Dice>,
    pub(crate) receiver_dice: Mutex<Dice>,
    pub(crate) trace: Mutex<Trace>,
}

impl World {
    /// The true time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Writes something into the trace.
    pub(crate) fn note<T: Hash + Debug>(&self, kind: &'static str, what: &T) {
        self.trace.lock().note(self.now(), kind, what);
    }
}

/// One life of one node, as the world outside sees it.
pub(crate) struct Link {
    /// Which machine.
    pub(crate) index: usize,
    /// Which life, counted over all machines.
    pub(crate) life: usize,
    pub(crate) clock: SimClock,
    pub(crate) dead: CancellationToken,
    // Not a watch channel: tokio wakes the waiters of one in an order drawn from its own chance.
    cut: AtomicBool,
    joined: Notify,
    node: OnceLock<NodeId>,
}

impl Link {
    pub(crate) fn new(index: usize, life: usize, clock: SimClock) -> Arc<Self> {
        Arc::new(Self {
            index,
            life,
            clock,
            dead: CancellationToken::new(),
            cut: AtomicBool::new(false),
            joined: Notify::new(),
            node: OnceLock::new(),
        })
    }

    /// Cuts the node off from store and network, or joins it again.
    pub(crate) fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
        if !cut {
            self.joined.notify_waiters();
        }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Waits until the node is not cut off. A dead node waits for ever.
    pub(crate) async fn passable(&self) {
        loop {
            let joined = self.joined.notified();
            if self.dead.is_cancelled() {
                std::future::pending::<()>().await;
            }
            if !self.is_cut() {
                return;
            }
            joined.await;
        }
    }

    /// The engine's name for itself, known from its first sign of life.
    pub(crate) fn set_node(&self, node: NodeId) {
        let _ = self.node.set(node);
    }

    pub(crate) fn node(&self) -> Option<NodeId> {
        self.node.get().copied()
    }
}
