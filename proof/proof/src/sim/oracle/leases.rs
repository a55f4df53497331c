//! Who owns which shard, and until when.

use std::time::Duration;

use posthorn_domain::{Epoch, Fence, NodeId, Shard, Timestamp};
use posthorn_store::{Grant, Heartbeat};

use super::{Invariant, Oracle};

/// The lease on one shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) holder: Option<NodeId>,
    pub(super) epoch: Epoch,
    pub(super) until: Timestamp,
    pub(super) since: Timestamp,
}

impl Oracle {
    /// A node said that it is alive.
    pub(crate) fn beat(&mut self, now: Timestamp, beat: &Heartbeat) {
        let until = now.plus(beat.ttl.into());
        for lease in self.leases.values_mut() {
            if lease.holder == Some(beat.node) {
                lease.until = until;
            }
        }
    }

    /// A node was given shards.
    pub(crate) fn acquired(
        &mut self,
        now: Timestamp,
        node: NodeId,
        grants: &[Grant],
        ttl: Duration,
    ) {
        for grant in grants {
            let old = self.leases.get(&grant.shard).copied();
            let live = old.filter(|lease| lease.until > now && lease.holder.is_some());
            if let Some(lease) = live.filter(|lease| lease.holder != Some(node)) {
                self.blame(
                    Invariant::I7,
                    now,
                    format!("{:?} was given to {node} while {:?} holds it", grant.shard, lease),
                );
            }
            let renewed = old.filter(|l| l.holder == Some(node) && l.epoch == grant.epoch);
            let grown = old.is_none_or(|lease| grant.epoch > lease.epoch);
            self.expect(renewed.is_some() || grown, Invariant::I7, now, || {
                format!("{:?} got epoch {:?} again", grant.shard, grant.epoch)
            });
            if renewed.is_none() {
                self.tally.handovers += 1;
            }
            let lease = Lease {
                holder: Some(node),
                epoch: grant.epoch,
                until: now.plus(ttl.into()),
                since: renewed.map_or(now, |lease| lease.since),
            };
            self.leases.insert(grant.shard, lease);
        }
    }

    /// A node gave shards back.
    pub(crate) fn released(&mut self, node: NodeId, grants: &[Grant]) {
        for grant in grants {
            if let Some(lease) = self.leases.get_mut(&grant.shard)
                && lease.holder == Some(node)
                && lease.epoch == grant.epoch
            {
                lease.holder = None;
                lease.until = Timestamp::MIN;
            }
        }
    }

    /// A node took its leave.
    pub(crate) fn departed(&mut self, node: NodeId) {
        for lease in self.leases.values_mut() {
            if lease.holder == Some(node) {
                lease.holder = None;
                lease.until = Timestamp::MIN;
            }
        }
    }

    /// Whether a fence is that of the present owner, whose lease runs.
    pub(super) fn allows_attempt(&self, fence: &Fence, now: Timestamp) -> bool {
        self.allows_outcome(fence) && self.lease_of(fence.node, fence.shard, now).is_some()
    }

    /// Whether a fence is that of the last owner: until somebody takes the shard, it may say what became of attempts.
    pub(super) fn allows_outcome(&self, fence: &Fence) -> bool {
        self.leases
            .get(&fence.shard)
            .is_some_and(|lease| lease.holder == Some(fence.node) && lease.epoch == fence.epoch)
    }

    /// The lease a node has on a shard right now.
    pub(super) fn lease_of(&self, node: NodeId, shard: Shard, now: Timestamp) -> Option<Lease> {
        self.leases
            .get(&shard)
            .filter(|lease| lease.holder == Some(node) && lease.until > now)
            .copied()
    }
}
