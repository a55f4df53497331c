//! Which shards of other nodes have new work because of this one. Sent as one hint now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthorn_domain::Shard;
use tokio::sync::Notify;

/// How long hints are gathered before one is sent.
const GATHER: Duration = Duration::from_millis(20);

/// One bit for each shard; a shard of one's own needs no hint.
#[derive(Clone, Default)]
pub(crate) struct Wakes(Arc<Masks>);

#[derive(Default)]
struct Masks {
    held: AtomicU64,
    pending: AtomicU64,
    some: Notify,
}

// One 64-bit mask covers every shard.
const _: () = assert!(posthorn_domain::SHARD_COUNT <= 64);

fn bit(shard: Shard) -> u64 {
    1 << shard.number()
}

impl Wakes {
    /// Says that a shard has new work.
    pub(crate) fn add(&self, shard: Shard) {
        if self.0.held.load(Ordering::Relaxed) & bit(shard) == 0 {
            self.0.pending.fetch_or(bit(shard), Ordering::Relaxed);
            self.0.some.notify_one();
        }
    }

    /// Whether this node holds a shard.
    pub(crate) fn holds(&self, shard: Shard) -> bool {
        self.0.held.load(Ordering::Relaxed) & bit(shard) != 0
    }

    /// Says which shards this node holds.
    pub(crate) fn set_held(&self, shards: impl Iterator<Item = Shard>) {
        self.0.held.store(shards.fold(0, |mask, shard| mask | bit(shard)), Ordering::Relaxed);
    }

    /// Waits for hints, gathers a little, and takes them.
    pub(crate) async fn next(&self) -> Vec<Shard> {
        loop {
            // What an abandoned wait had gathered is still there.
            if self.0.pending.load(Ordering::Relaxed) == 0 {
                self.0.some.notified().await;
            }
            tokio::time::sleep(GATHER).await;
            let mask = self.0.pending.swap(0, Ordering::Relaxed);
            if mask != 0 {
                return Shard::all().filter(|shard| mask & bit(*shard) != 0).collect();
            }
        }
    }
}
