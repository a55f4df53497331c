//! Who is alive and who owns which shards.

use std::time::Duration;

use posthorn_domain::{CatalogVersion, Epoch, NodeId, Shard};

/// A node's sign of life.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Who.
    pub node: NodeId,
    /// How long the sign counts, and how long its shards are renewed for.
    pub ttl: Duration,
    /// The catalog version the node works with.
    pub catalog: CatalogVersion,
    /// Which version of the program the node runs.
    pub version: &'static str,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    /// All nodes whose sign of life still counts, the asking one included, by id.
    pub nodes: Vec<LiveNode>,
    /// Nodes whose sign of life has run out, and that did not depart, by id. They are listed for a while: long
    /// enough for somebody to notice, not for ever.
    pub lost: Vec<NodeId>,
    /// The last sign of life of each of both, by id.
    pub signs: Vec<Sign>,
    /// Every shard that is held under a lease that has not run out.
    pub holders: Vec<ShardHolder>,
    /// The version of the whole catalog.
    pub catalog: CatalogVersion,
}

/// A node that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveNode {
    /// Who.
    pub node: NodeId,
    /// The catalog version it works with.
    pub catalog: CatalogVersion,
}

/// The last sign of life of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Whose.
    pub node: NodeId,
    /// How long ago it was, by the store's clock.
    pub ago: Duration,
    /// Which version of the program it ran; empty where that is not known.
    pub version: String,
}

/// Who holds a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHolder {
    /// Which.
    pub shard: Shard,
    /// Who.
    pub node: NodeId,
    /// Since which epoch.
    pub epoch: Epoch,
}

/// A shard that was given to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which.
    pub shard: Shard,
    /// Under which epoch.
    pub epoch: Epoch,
}
