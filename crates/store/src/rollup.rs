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

/// Of what a question about many scopes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollupKind {
    /// All tenants.
    Tenants,
    /// All subscriptions.
    Subscriptions,
}

impl RollupKind {
    /// The texts of its scopes: from the first of these up to, but without, the second.
    pub fn bounds(self) -> (&'static str, &'static str) {
        match self {
            Self::Tenants => ("ten_", "ten`"),
            Self::Subscriptions => ("sub_", "sub`"),
        }
    }

    /// Whether a scope is of this kind.
    pub fn contains(self, scope: &RollupScope) -> bool {
        match self {
            Self::Tenants => matches!(scope, RollupScope::Tenant(_)),
            Self::Subscriptions => matches!(scope, RollupScope::Subscription(_)),
        }
    }
}

/// What is to be summed up.
#[derive(Clone, Copy, Debug)]
pub struct SumsAsk {
    /// Of whom.
    pub kind: RollupKind,
    /// From minutes, or from hours and the minutes that are not in them yet.
    pub step: RollupStep,
    /// The beginning of the first step.
    pub from: Timestamp,
    /// The end of the last step.
    pub until: Timestamp,
    /// When so many rows were looked at, no further step is begun.
    pub rows: usize,
}

/// What many scopes come to in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// All steps from here on are in them.
    pub from: Timestamp,
    /// Those of whom anything was counted.
    pub scopes: BTreeMap<RollupScope, Sum>,
}

/// What one scope comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Everything together.
    pub counts: RollupCounts,
    /// The last step with a delivery that became a dead letter.
    pub dead_at: Option<Timestamp>,
}

/// Sums up steps, the newest first, until there are enough rows.
#[derive(Debug)]
pub struct Summing {
    left: usize,
    sums: Sums,
}

impl Summing {
    /// For this question.
    pub fn new(ask: &SumsAsk) -> Self {
        Self { left: ask.rows, sums: Sums { from: ask.until, scopes: BTreeMap::new() } }
    }

    /// Whether another step may be begun.
    pub fn goes_on(&self) -> bool {
        self.left > 0
    }

    /// How many rows may still be looked at.
    pub fn left(&self) -> usize {
        self.left
    }

    /// A row of a step that is being read.
    pub fn add(&mut self, at: Timestamp, scope: RollupScope, counts: &RollupCounts) {
        self.left = self.left.saturating_sub(1);
        let sum = self.sums.scopes.entry(scope).or_default();
        sum.counts.add(counts);
        if counts.dead > 0 {
            sum.dead_at = sum.dead_at.max(Some(at));
        }
    }

    /// All rows from here on were added.
    pub fn reached(&mut self, at: Timestamp) {
        self.sums.from = self.sums.from.min(at);
    }

    /// The sums.
    pub fn done(self) -> Sums {
        self.sums
    }
}

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
