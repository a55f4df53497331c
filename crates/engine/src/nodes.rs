//! Nodes: who they are, what they hold, and when they were heard of last, for people.
//!
//! Nothing is asked of the store for it. Every heartbeat brings it along, and what the last one said is kept.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{CatalogVersion, Clock, Epoch, NodeId, Shard, Timestamp};
use posthorn_store::Membership;

use crate::engine::Engine;

/// A node, as the store knew it at the last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    /// Who.
    pub id: NodeId,
    /// Whether its sign of life counted. Of others nobody has heard in time, and they did not say that they leave.
    pub alive: bool,
    /// When it was heard of last.
    pub seen_at: Timestamp,
    /// The version of the program it ran; empty where that is not known.
    pub version: String,
    /// The catalog version it works with; of those alive.
    pub catalog: Option<CatalogVersion>,
    /// The shards it holds, each since which epoch.
    pub shards: Vec<(Shard, Epoch)>,
}

/// What the last heartbeat said of all nodes.
#[derive(Clone)]
pub(crate) struct KnownNodes {
    clock: Arc<dyn Clock>,
    last: Arc<Mutex<(Timestamp, Membership)>>,
}

impl KnownNodes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Arc::new(Mutex::new((Timestamp::MIN, Membership::default()))) }
    }

    pub(crate) fn set(&self, members: &Membership) {
        *self.last.lock() = (self.clock.now(), members.clone());
    }

    /// Nodes that fell silent without a word.
    pub(crate) fn lost(&self) -> Vec<NodeId> {
        self.last.lock().1.lost.clone()
    }

    fn all(&self) -> Vec<KnownNode> {
        let last = self.last.lock();
        let (at, members) = &*last;
        let known = members.signs.iter().map(|sign| {
            let live = members.nodes.iter().find(|live| live.node == sign.node);
            let held = members.holders.iter().filter(|holder| holder.node == sign.node);
            KnownNode {
                id: sign.node,
                alive: live.is_some(),
                seen_at: at.minus(sign.ago.into()),
                version: sign.version.clone(),
                catalog: live.map(|live| live.catalog),
                shards: held.map(|holder| (holder.shard, holder.epoch)).collect(),
            }
        });
        known.collect()
    }
}

impl Engine {
    /// All nodes that work on the store, and those that were lost lately, by id. As of the last heartbeat, a few
    /// seconds ago at most while the store answers.
    pub fn nodes(&self) -> Vec<KnownNode> {
        self.known_nodes().all()
    }

    /// Nodes that fell silent without departing, and for how long. They are named for a while.
    pub fn lost_nodes(&self) -> Vec<(NodeId, Duration)> {
        let now = self.now();
        let lost = self.nodes().into_iter().filter(|node| !node.alive);
        lost.map(|node| (node.id, now.since(node.seen_at).to_duration())).collect()
    }
}
