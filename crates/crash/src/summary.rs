//! The result of a run, in numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::checker::{Counts, Violation};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What was tested.
    pub store: String,
    /// What repeats it.
    pub seed: u64,
    /// Faults, one per cycle.
    pub cycles: u64,
    /// Everything that was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// What the server answered to publishers, by status and code.
    pub answers: BTreeMap<String, u64>,
    /// How long the server needed to deliver the rest once the faults had stopped.
    pub drain_seconds: f64,
    /// How long it all took.
    pub seconds: f64,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Where the evidence is, when it was kept.
    pub evidence: Option<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(f, "store         {} (seed {})", self.store, self.seed)?;
        writeln!(f, "cycles        {}", self.cycles)?;
        writeln!(f, "kills         {}", counts.kills)?;
        writeln!(f, "acked         {}", counts.acked)?;
        writeln!(f, "indeterminate {} ({} of them stored)", counts.abandoned, counts.appeared)?;
        writeln!(f, "delivered     {} of {}", counts.delivered, counts.expected)?;
        writeln!(
            f,
            "duplicates    {} (at most {} explained by the faults)",
            counts.duplicates, counts.duplicates_allowed
        )?;
        writeln!(f, "lost          {}", counts.lost)?;
        let answers: Vec<String> =
            self.answers.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        writeln!(f, "answers       {}", answers.join(", "))?;
        writeln!(f, "seconds       {:.1}, of these {:.1} to drain", self.seconds, self.drain_seconds)?;
        writeln!(f, "violations    {}", counts.violations)?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        if let Some(folder) = &self.evidence {
            writeln!(f, "evidence      {folder}")?;
        }
        Ok(())
    }
}
