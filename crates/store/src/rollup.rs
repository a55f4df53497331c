//! Figures of the past, by the minute and by the hour.

use std::collections::BTreeMap;

use posthorn_domain::{NodeId, RollupCounts, RollupScope, RollupStep, Timestamp};

/// What a node has counted, to be written with the next outcomes. Of one node only one of these is on its
/// way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollups {
    /// Who has counted. Each has rows of its own, so that no two wait for each other.
    pub node: NodeId,
    /// Grows with each that the node sends. What has a greater number is not replaced by what has a smaller.
    pub number: u64,
    /// Each scope and minute at most once.
    pub minutes: Vec<MinuteRollup>,
}

/// What a node has counted of one scope in one minute, from its beginning until now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinuteRollup {
    /// About whom.
    pub scope: RollupScope,
    /// The beginning of the minute.
    pub minute: Timestamp,
    /// All of it so far: it replaces what the node has written before.
    pub counts: RollupCounts,
}

/// Which part of a series.
#[derive(Clone, Debug)]
pub struct SeriesAsk {
    /// About whom.
    pub scope: RollupScope,
    /// By minutes or hours.
    pub step: RollupStep,
    /// The beginning of the first step.
    pub from: Timestamp,
    /// The end of the last step.
    pub until: Timestamp,
}

impl SeriesAsk {
    /// Whether a step is part of it.
    pub fn contains(&self, at: Timestamp) -> bool {
        at >= self.from && at < self.until
    }
}

/// Steps of a series in which something was counted, by time.
pub type Series = Vec<(Timestamp, RollupCounts)>;

/// Adds rows up to the steps that they are part of.
pub fn add_up(step: RollupStep, rows: impl Iterator<Item = (Timestamp, RollupCounts)>) -> Series {
    let mut sums: BTreeMap<Timestamp, RollupCounts> = BTreeMap::new();
    for (at, counts) in rows {
        sums.entry(step.floor(at)).or_default().add(&counts);
    }
    sums.into_iter().collect()
}

/// What is to be done about rollups now and then.
#[derive(Clone, Copy, Debug)]
pub struct TendRollups {
    /// Minutes before this are added to their hours. No node counts for them any more.
    pub fold_before: Timestamp,
    /// Minutes before this are removed, when they were added to their hours.
    pub minutes_before: Timestamp,
    /// Hours before this are removed.
    pub hours_before: Timestamp,
    /// At most so many rows in one go, of each kind.
    pub limit: usize,
}
