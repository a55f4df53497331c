//! The result of a run, in numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::crash::checker::{Counts, Verdict, Violation};
use crate::crash::resumption::Resumption;

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
    /// How soon work went on after fail-overs of the database.
    pub resumption: Option<Resumption>,
    /// How long it all took.
    pub seconds: f64,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// Where the evidence is, when it was kept.
    pub evidence: Option<String>,
    /// What else was seen.
    pub notes: Vec<String>,
}

impl Summary {
    /// With a verdict; the rest is for who ran it to fill in.
    pub fn new(verdict: Verdict, answers: BTreeMap<String, u64>) -> Self {
        Self {
            store: String::new(),
            seed: 0,
            cycles: 0,
            counts: verdict.counts,
            answers,
            drain_seconds: 0.0,
            resumption: None,
            seconds: 0.0,
            violations: verdict.violations,
            evidence: None,
            notes: Vec::new(),
        }
    }
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
            "duplicates    {} (at most {} explained by the faults), {} at one subscription around one fault",
            counts.duplicates, counts.duplicates_allowed, counts.duplicates_peak
        )?;
        writeln!(f, "lost          {} ({} still pending)", counts.lost, counts.pending)?;
        let answers: Vec<String> =
            self.answers.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        writeln!(f, "answers       {}", answers.join(", "))?;
        writeln!(
            f,
            "seconds       {:.1}, of these {:.1} to drain",
            self.seconds, self.drain_seconds
        )?;
        if let Some(Resumption { promotions, publish, delivery }) = &self.resumption {
            writeln!(
                f,
                "fail-overs    {promotions}; from the promotion to the first publish {} ms (median), {} ms (max), \
                 to the first delivery {} ms (median), {} ms (max)",
                publish.median, publish.max, delivery.median, delivery.max
            )?;
        }
        writeln!(f, "violations    {}", counts.broken)?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        for note in &self.notes {
            writeln!(f, "note          {note}")?;
        }
        if let Some(folder) = &self.evidence {
            writeln!(f, "evidence      {folder}")?;
        }
        Ok(())
    }
}
