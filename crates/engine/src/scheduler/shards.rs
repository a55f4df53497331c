//! Which shards this node holds, and how much of each is under way.

use posthorn_domain::{Epoch, SHARD_COUNT, Shard, Timestamp};
use tracing::debug;

use super::Scheduler;

/// The shards held.
pub(super) struct Held(Vec<Holding>);

#[derive(Clone, Copy, Default)]
struct Holding {
    /// Under which epoch, and since when.
    lease: Option<(Epoch, Timestamp)>,
    /// About to be given back: nothing starts any more.
    retiring: bool,
    /// Attempts under way and outcomes not yet written, of any epoch.
    busy: usize,
}

impl Default for Held {
    fn default() -> Self {
        Self(vec![Holding::default(); usize::from(SHARD_COUNT)])
    }
}

impl Held {
    fn at(&self, shard: Shard) -> &Holding {
        &self.0[usize::from(shard.number())]
    }

    fn at_mut(&mut self, shard: Shard) -> &mut Holding {
        &mut self.0[usize::from(shard.number())]
    }

    pub(super) fn holds(&self, shard: Shard) -> bool {
        self.at(shard).lease.is_some()
    }

    pub(super) fn epoch(&self, shard: Shard) -> Option<(Epoch, Timestamp)> {
        self.at(shard).lease
    }

    /// The lease, unless the shard is about to be given back.
    pub(super) fn usable(&self, shard: Shard) -> Option<(Epoch, Timestamp)> {
        let holding = self.at(shard);
        holding.lease.filter(|_| !holding.retiring)
    }

    /// True when this is news: a shard not held before, or held under another epoch.
    pub(super) fn gain(&mut self, shard: Shard, epoch: Epoch, now: Timestamp) -> bool {
        let holding = self.at_mut(shard);
        if holding.lease.is_some_and(|(held, _)| held == epoch) && !holding.retiring {
            return false;
        }
        holding.lease = Some((epoch, now));
        holding.retiring = false;
        true
    }

    /// The clock was set back: nothing can have been gained in the future.
    pub(super) fn since_at_most(&mut self, now: Timestamp) {
        for (_, since) in self.0.iter_mut().filter_map(|holding| holding.lease.as_mut()) {
            *since = (*since).min(now);
        }
    }

    pub(super) fn lose(&mut self, shard: Shard) {
        self.at_mut(shard).lease = None;
    }

    pub(super) fn retire(&mut self, shard: Shard) {
        self.at_mut(shard).retiring = true;
    }

    /// Takes note of work that began (+1) or is written down (-1).
    pub(super) fn busy(&mut self, shard: Shard, change: isize) {
        let holding = self.at_mut(shard);
        holding.busy = holding.busy.saturating_add_signed(change);
    }
}

impl Scheduler {
    /// Answers those who wait for shards to fall quiet.
    pub(super) fn answer_retired(&mut self) {
        if self.retiring.is_empty() {
            return;
        }
        let quiet = |held: &Held, shards: &[Shard]| shards.iter().all(|s| held.at(*s).busy == 0);
        let held = &self.held;
        let (done, rest) = self.retiring.drain(..).partition(|(shards, _)| quiet(held, shards));
        self.retiring = rest;
        for (shards, answer) in done {
            debug!(?shards, "shards have no attempts in progress and can be released");
            // Those that were lost and gained anew meanwhile are no longer meant.
            let still = |s: &Shard| self.held.at(*s).retiring;
            let gone: Vec<Shard> = shards.iter().copied().filter(still).collect();
            self.lose(&gone);
            let _ = answer.send(());
        }
    }
}
