//! Leases of the model: who is alive, who holds which shard.

use std::collections::BTreeMap;
use std::time::Duration;

use posthorn_domain::{CatalogVersion, Epoch, Fence, NodeId, Shard, Span, Timestamp};

use posthorn_store::{Grant, Heartbeat, LiveNode, Membership, ShardHolder, Sign};

/// How long nodes are remembered that gave no sign of life.
const LOST_KEPT: Span = Span::from_secs(86_400);

#[derive(Default)]
pub(super) struct Leases {
    nodes: BTreeMap<NodeId, Life>,
    shards: BTreeMap<Shard, Lease>,
}

struct Life {
    seen: Timestamp,
    until: Timestamp,
    catalog: CatalogVersion,
    version: &'static str,
}

struct Lease {
    holder: Option<NodeId>,
    epoch: Epoch,
    until: Timestamp,
}

impl Leases {
    pub(super) fn heartbeat(
        &mut self,
        beat: Heartbeat,
        now: Timestamp,
        catalog: CatalogVersion,
    ) -> Membership {
        let until = now.plus(beat.ttl.into());
        let Heartbeat { catalog: own, version, .. } = beat;
        self.nodes.insert(beat.node, Life { seen: now, until, catalog: own, version });
        for lease in self.shards.values_mut() {
            if lease.holder == Some(beat.node) {
                lease.until = until;
            }
        }
        let forgotten = now.minus(LOST_KEPT);
        self.nodes.retain(|_, life| life.until > forgotten);
        let alive = self.nodes.iter().filter(|(_, life)| life.until > now);
        let lost = self.nodes.iter().filter(|(_, life)| life.until <= now);
        let lost = lost.map(|(node, _)| *node).collect();
        let held = self.shards.iter().filter(|(_, lease)| lease.until > now);
        Membership {
            nodes: alive
                .map(|(node, life)| LiveNode { node: *node, catalog: life.catalog })
                .collect(),
            lost,
            signs: self
                .nodes
                .iter()
                .map(|(node, life)| Sign {
                    node: *node,
                    ago: now.since(life.seen).to_duration(),
                    version: life.version.to_owned(),
                })
                .collect(),
            holders: held
                .filter_map(|(shard, lease)| {
                    Some(ShardHolder { shard: *shard, node: lease.holder?, epoch: lease.epoch })
                })
                .collect(),
            catalog,
        }
    }

    pub(super) fn acquire(
        &mut self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
        now: Timestamp,
    ) -> Vec<Grant> {
        let mut grants = Vec::new();
        for shard in shards {
            let lease = self.shards.entry(*shard).or_insert(Lease {
                holder: None,
                epoch: Epoch(0),
                until: Timestamp::MIN,
            });
            let live = lease.until > now;
            if live && lease.holder.is_some_and(|holder| holder != node) {
                continue;
            }
            // Also for its own: it asks only for what it does not know to be its own.
            let step = u64::from(!crate::model::plant::active("same-epoch"));
            lease.epoch = Epoch(lease.epoch.0 + step);
            lease.holder = Some(node);
            lease.until = now.plus(ttl.into());
            grants.push(Grant { shard: *shard, epoch: lease.epoch });
        }
        grants
    }

    pub(super) fn release(&mut self, node: NodeId, grants: &[Grant]) {
        for grant in grants {
            if let Some(lease) = self.shards.get_mut(&grant.shard)
                && lease.holder == Some(node)
                && lease.epoch == grant.epoch
            {
                lease.holder = None;
                lease.until = Timestamp::MIN;
            }
        }
    }

    pub(super) fn depart(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        for lease in self.shards.values_mut() {
            if lease.holder == Some(node) {
                lease.holder = None;
                lease.until = Timestamp::MIN;
            }
        }
    }

    /// Whether an attempt may begin.
    pub(super) fn allows_attempt(&self, fence: &Fence, now: Timestamp) -> bool {
        let runs = self.shards.get(&fence.shard).is_some_and(|lease| lease.until > now);
        runs && self.allows_outcome(fence)
    }

    /// Whether an outcome may be written: also under a lease that has run out, as long as nobody took the shard.
    pub(super) fn allows_outcome(&self, fence: &Fence) -> bool {
        self.shards
            .get(&fence.shard)
            .is_some_and(|lease| lease.holder == Some(fence.node) && lease.epoch == fence.epoch)
    }
}
