//! What matching costs, in units of about one byte looked at, which takes about a nanosecond.
//!
//! A filter has a [`Cost`]: what it may take at most for a document of some size. It decides where an
//! event is matched, and whether a filter may be written down at all. A [`Meter`] counts what matching
//! one event really takes, and ends it when that is more than an event may cost. Both depend on filters
//! and event alone, never on the machine or the hour, so that a repeat is answered the same.

use std::cell::Cell;
use std::iter::Sum;
use std::ops::{Add, AddAssign, SubAssign};

use serde_json::Value;

/// One condition on topic, type or attribute.
pub(super) const CONDITION: u64 = 32;
/// One test of a payload, besides what it reads.
pub(super) const TEST: u64 = 32;
/// One item of a list that is looked through.
pub(super) const SCAN: u64 = 4;
/// One byte of a payload that is read as JSON.
const PARSE: u64 = 4;
/// One filter, besides its conditions.
const FILTER: u64 = 16;

/// What matching may cost at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Whatever the event.
    pub fixed: u64,
    /// How often a part of the payload is looked through as a whole.
    pub scans: u64,
    /// Whether the payload is read as JSON.
    pub reads: bool,
}

impl Cost {
    /// One filter without conditions.
    pub const FILTER: Self = Self { fixed: FILTER, scans: 0, reads: false };

    /// For an event with a payload of so many bytes. Lists of short items cost most: two bytes an item.
    pub fn of(&self, payload_bytes: usize) -> u64 {
        let bytes = payload_bytes as u64;
        let reads = if self.reads { bytes.saturating_mul(PARSE) } else { 0 };
        let scans = self.scans.saturating_mul(bytes.saturating_mul(SCAN / 2));
        self.fixed.saturating_add(reads).saturating_add(scans)
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed.saturating_add(other.fixed),
            scans: self.scans.saturating_add(other.scans),
            reads: self.reads || other.reads,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// `reads` stays: a sum from which something was taken may be too high, never too low.
impl SubAssign for Cost {
    fn sub_assign(&mut self, other: Self) {
        self.fixed = self.fixed.saturating_sub(other.fixed);
        self.scans = self.scans.saturating_sub(other.scans);
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// Counts what matching one event takes, up to a limit.
#[derive(Debug)]
pub struct Meter {
    spent: Cell<u64>,
    limit: u64,
}

impl Meter {
    /// A meter that runs out after so much.
    pub const fn new(limit: u64) -> Self {
        Self { spent: Cell::new(0), limit }
    }

    /// Counts.
    pub fn spend(&self, units: u64) {
        self.spent.set(self.spent.get().saturating_add(units));
    }

    /// Counts the reading of a payload as JSON.
    pub(super) fn parse(&self, bytes: usize) {
        self.spend((bytes as u64).saturating_mul(PARSE));
    }

    /// Whether it has run out: what was matched since means nothing.
    pub fn is_spent(&self) -> bool {
        self.spent.get() > self.limit
    }

    /// What was counted.
    pub fn spent(&self) -> u64 {
        self.spent.get()
    }
}

/// About how many bytes a value is compared with.
pub(super) fn weight(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len() as u64,
        Value::Array(items) => 8 + items.iter().map(weight).sum::<u64>(),
        Value::Object(members) => {
            8 + members.iter().map(|(name, value)| name.len() as u64 + weight(value)).sum::<u64>()
        }
    }
}
