//! What a correct sender reports.

use std::fmt;

use posthorn_domain::{AttemptOutcome, FailureCode};

/// How an attempt ended, as far as a receiver can be blamed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response head arrived, with this status.
    Answered(u16),
    /// None did, for this reason.
    Failed(FailureCode),
}

impl From<&AttemptOutcome> for Outcome {
    fn from(outcome: &AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Answered(answer) => Self::Answered(answer.status),
            AttemptOutcome::Failed { code, .. } => Self::Failed(*code),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => write!(f, "answered {status}"),
            Self::Failed(code) => f.write_str(code.as_str()),
        }
    }
}

/// The outcomes that are right. More than one only where the network decides which comes first, or
/// where refusing is as safe as accepting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation(pub(crate) &'static [Outcome]);

impl Expectation {
    /// Whether an attempt that ended like this was handled right.
    pub fn allows(self, outcome: Outcome) -> bool {
        self.0.contains(&outcome)
    }

    /// All of them.
    pub fn outcomes(self) -> &'static [Outcome] {
        self.0
    }

    /// Whether every right outcome is a success under the default rule (2xx).
    pub fn is_success(self) -> bool {
        self.0.iter().all(|outcome| matches!(outcome, Outcome::Answered(200..=299)))
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, outcome) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            write!(f, "{outcome}")?;
        }
        Ok(())
    }
}
