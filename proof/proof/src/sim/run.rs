//! One run, and what came of it.

use super::driver;
use super::oracle::{Tally, Violation};

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which run.
    pub seed: u64,
    /// The hash of everything that happened.
    pub hash: u64,
    /// How much happened.
    pub entries: u64,
    /// Counts.
    pub tally: Tally,
    /// Nodes that were killed.
    pub crashes: u64,
    /// How much time passed inside.
    pub virtual_ms: u64,
    /// What must never happen and did.
    pub violations: Vec<Violation>,
    /// The trace as text, if it was asked for.
    pub lines: Vec<String>,
}

/// Runs one seed. The same seed gives the same outcome, hash included.
pub fn run(seed: u64, verbose: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads or I/O can always be made");
    runtime.block_on(driver::drive(seed, verbose))
}
