//! Whether what is stored fits together.

/// Rows that do not fit to others: each store knows what to look for in its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// What is wrong with them, in words.
    pub what: &'static str,
    /// How many there are.
    pub rows: u64,
    /// Whether it can be put right without losing anything that somebody could still read.
    pub repairable: bool,
}
