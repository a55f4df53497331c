//! Who is alive and who holds which shard, in memory.
//!
//! Only this process can use the file, so leases end with it: whoever opens the file next starts
//! with none held. Epochs are given out by the caller, who writes them to the file first.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use posthorn_domain::{CatalogVersion, Epoch, Fence, NodeId, SHARD_COUNT, Shard};
use posthorn_store::{Grant, Heartbeat, LiveNode, Membership, ShardHolder, Sign};

/// How long nodes are remembered that gave no sign of life.
const LOST_KEPT: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy)]
struct Lease {
    node: NodeId,
    until: Instant,
}

/// A node's last sign of life.
#[derive(Clone, Copy)]
struct Life {
    seen: Instant,
    until: Instant,
    catalog: CatalogVersion,
    version: &'static str,
}

/// All leases. Small enough to be copied before a group that changes it.
#[derive(Clone)]
pub(crate) struct Leases {
    nodes: BTreeMap<NodeId, Life>,
    held: HashMap<Shard, Lease>,
    epochs: Vec<u64>,
}

impl Leases {
    /// Nothing held; `epochs` as the file has them.
    pub(crate) fn new(stored: impl IntoIterator<Item = (Shard, u64)>) -> Self {
        let mut epochs = vec![0; usize::from(SHARD_COUNT)];
        for (shard, epoch) in stored {
            epochs[usize::from(shard.number())] = epoch;
        }
        Self { nodes: BTreeMap::new(), held: HashMap::new(), epochs }
    }

    fn epoch(&self, shard: Shard) -> Epoch {
        Epoch(self.epochs[usize::from(shard.number())])
    }

    fn holder(&self, shard: Shard, now: Instant) -> Option<NodeId> {
        self.held.get(&shard).filter(|lease| lease.until > now).map(|lease| lease.node)
    }

    /// Who holds a shard, or held it last when nobody took it since.
    fn owner(&self, shard: Shard) -> Option<NodeId> {
        self.held.get(&shard).map(|lease| lease.node)
    }

    /// Whether an attempt may begin.
    pub(crate) fn allow_attempt(&self, fence: &Fence, now: Instant) -> bool {
        self.allow_outcome(fence) && self.holder(fence.shard, now).is_some()
    }

    /// Whether an outcome may be written: also under a lease that has run out, as long as nobody took the shard.
    pub(crate) fn allow_outcome(&self, fence: &Fence) -> bool {
        self.epoch(fence.shard) == fence.epoch && self.owner(fence.shard) == Some(fence.node)
    }

    pub(crate) fn heartbeat(
        &mut self,
        beat: Heartbeat,
        now: Instant,
        catalog: CatalogVersion,
    ) -> Membership {
        let until = later(now, beat.ttl);
        let Heartbeat { catalog: own, version, .. } = beat;
        self.nodes.insert(beat.node, Life { seen: now, until, catalog: own, version });
        self.nodes.retain(|_, life| later(life.until, LOST_KEPT) > now);
        for lease in self.held.values_mut().filter(|lease| lease.node == beat.node) {
            lease.until = until;
        }
        let live = |(node, life): (&NodeId, &Life)| {
            (life.until > now).then_some(LiveNode { node: *node, catalog: life.catalog })
        };
        let sign = |(node, life): (&NodeId, &Life)| Sign {
            node: *node,
            ago: now.saturating_duration_since(life.seen),
            version: life.version.to_owned(),
        };
        let lost = self.nodes.iter().filter(|(_, life)| life.until <= now);
        let holder = |shard| {
            let node = self.holder(shard, now)?;
            Some(ShardHolder { shard, node, epoch: self.epoch(shard) })
        };
        Membership {
            nodes: self.nodes.iter().filter_map(live).collect(),
            lost: lost.map(|(node, _)| *node).collect(),
            signs: self.nodes.iter().map(sign).collect(),
            holders: Shard::all().filter_map(holder).collect(),
            catalog,
        }
    }

    /// Takes what is free; the epochs must be stored by the caller.
    pub(crate) fn acquire(
        &mut self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
        now: Instant,
    ) -> Vec<Grant> {
        let mut grants = Vec::new();
        for shard in shards {
            if self.holder(*shard, now).is_some_and(|holder| holder != node) {
                continue;
            }
            // Also for its own: it asks only for what it does not know to be its own.
            self.epochs[usize::from(shard.number())] += 1;
            self.held.insert(*shard, Lease { node, until: later(now, ttl) });
            grants.push(Grant { shard: *shard, epoch: self.epoch(*shard) });
        }
        grants
    }

    pub(crate) fn release(&mut self, node: NodeId, grants: &[Grant]) {
        for grant in grants {
            let mine = self.held.get(&grant.shard).is_some_and(|lease| lease.node == node);
            if mine && self.epoch(grant.shard) == grant.epoch {
                self.held.remove(&grant.shard);
            }
        }
    }

    pub(crate) fn depart(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.held.retain(|_, lease| lease.node != node);
    }
}

/// Absurdly long times count as a year.
fn later(now: Instant, ttl: Duration) -> Instant {
    now + ttl.min(Duration::from_secs(365 * 86_400))
}
