//! Shards: slices of all subscriptions, the unit of ownership between nodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{NodeId, SubscriptionId};

/// How many slices there are. Fixed for the life of a store: enough for a few dozen nodes, few
/// enough that a lease table is one small page.
pub const SHARD_COUNT: u16 = 64;

/// One slice of all subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shard(u16);

impl Shard {
    /// The shard with this number, if there is one.
    pub fn new(number: u16) -> Option<Self> {
        (number < SHARD_COUNT).then_some(Self(number))
    }

    /// Where a subscription lives, for ever: the low bits of its id are random.
    pub fn of(subscription: SubscriptionId) -> Self {
        let bytes = subscription.as_bytes();
        Self(u16::from_be_bytes([bytes[14], bytes[15]]) % SHARD_COUNT)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Shard> {
        (0..SHARD_COUNT).map(Shard)
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

/// How often a shard has changed hands. Grows by one with every new owner and never repeats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// What every write about a delivery carries: who believes to own its shard, and since when.
/// A store refuses the write when the shard has moved on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The shard of the delivery's subscription.
    pub shard: Shard,
    /// The epoch under which the writer leased it.
    pub epoch: Epoch,
    /// The writer.
    pub node: NodeId,
}
