//! What a receiver's trouble does to the rest of its subscription's work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PolicyError, refuse};
use crate::Span;

/// Pauses deliveries to a receiver whose calls hang or time out. A receiver that fails quickly
/// keeps its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Breaker {
    /// The number of failures in a row, each of a second or more, that open it.
    #[schemars(range(min = 1, max = 1_000))]
    pub open_after: u32,
    /// The longest time before the receiver is tried again, 1s to 1h.
    pub longest: Span,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { open_after: 8, longest: Span::from_secs(300) }
    }
}

impl Breaker {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.open_after == 0 || self.open_after > 1_000 {
            return refuse("breaker.open_after", "must be 1 to 1000");
        }
        if self.longest < Span::from_secs(1) || self.longest > Span::from_secs(3_600) {
            return refuse("breaker.longest", "must be 1s to 1h");
        }
        Ok(())
    }
}

/// What happens to a subscription whose receiver keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failing {
    /// After this time without a success, 1s to 365d, and at least one exhausted delivery, the
    /// subscription is disabled. Pending deliveries are kept.
    pub disable_after: Span,
}

impl Failing {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.disable_after < Span::from_secs(1)
            || self.disable_after > Span::from_secs(31_536_000)
        {
            return refuse("failing.disable_after", "must be 1s to 365d");
        }
        Ok(())
    }
}
