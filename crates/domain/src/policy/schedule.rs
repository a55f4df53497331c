//! When to try again.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{ATTEMPTS_MAX, PolicyError, WAIT_DAYS_MAX, refuse};
use crate::{Span, Timestamp};

/// When to retry, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The waits between attempts.
    pub backoff: Backoff,
    /// A random change of the waits.
    pub jitter: Jitter,
    /// The number of attempts, the first included. At least one of this and `max_age` must be set.
    #[schemars(range(min = 1, max = ATTEMPTS_MAX))]
    pub max_attempts: Option<u32>,
    /// The maximum age of a delivery: no attempt starts later. A retry by hand starts the age
    /// again. `auto` fits the schedule. The time in which the subscription is paused or disabled
    /// does not count.
    pub max_age: Option<MaxAge>,
    /// What a receiver's `Retry-After` does.
    pub retry_after: RetryAfter,
}

/// How old a delivery may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxAge {
    /// What fits the schedule: twice as long as it takes at its longest, and at least a week.
    Auto,
    /// So old.
    Is(Span),
}

/// The least that [`MaxAge::Auto`] means.
const AUTO_MIN: Span = Span::from_secs(7 * 86_400);
/// How many times the schedule's length it means.
const AUTO_FACTOR: u64 = 2;
/// As it is written.
const AUTO: &str = "auto";

impl Serialize for MaxAge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Is(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for MaxAge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        if text == AUTO {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Is).map_err(de::Error::custom)
    }
}

/// The waits between attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// Always the same wait.
    Fixed {
        /// The wait, at most 30d.
        wait: Span,
    },
    /// Waits that grow by a factor.
    Exponential {
        /// The first wait.
        initial: Span,
        /// Each wait is this many times the one before.
        #[schemars(range(min = 1, max = 100))]
        factor: f64,
        /// The longest wait, at most 30d.
        cap: Span,
    },
    /// A list of waits. The last one repeats.
    List {
        /// The waits in order, each at most 30d.
        waits: Vec<Span>,
    },
}

/// A random change of each wait, so that deliveries that failed together are not retried together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Jitter {
    /// Nothing.
    None,
    /// Up to this fraction of the wait, longer or shorter.
    Ratio {
        /// 0.1 means ± 10 %.
        #[schemars(range(min = 0, max = 1))]
        ratio: f64,
    },
    /// A uniform choice of `from`, `from + step`, … up to `to`, always added.
    Add {
        /// The smallest value.
        from: Span,
        /// The largest value.
        to: Span,
        /// The step, more than zero.
        step: Span,
    },
}

/// What a receiver's `Retry-After` does. It can only make a wait longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryAfter {
    /// Whether it is honoured.
    pub honour: bool,
    /// The longest wait that is accepted.
    pub cap: Span,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { honour: true, cap: Span::from_secs(86_400) }
    }
}

/// Longest wait of any schedule.
const WAIT_MAX: Span = Span::from_secs(WAIT_DAYS_MAX * 86_400);

impl Backoff {
    /// The wait after attempt number `done` of the budget (1 = the first) has failed.
    pub fn wait(&self, done: u32) -> Span {
        let index = done.saturating_sub(1);
        match self {
            Self::Fixed { wait } => *wait,
            Self::Exponential { initial, factor, cap } => {
                let exponent = i32::try_from(index).unwrap_or(i32::MAX);
                let millis = initial.as_millis() as f64 * factor.powi(exponent);
                if millis.is_finite() && millis < cap.as_millis() as f64 {
                    Span::from_millis(millis.round() as u64)
                } else {
                    *cap
                }
            }
            Self::List { waits } => {
                let last = waits.last().copied().unwrap_or(Span::ZERO);
                waits.get(index as usize).copied().unwrap_or(last)
            }
        }
    }
}

impl Jitter {
    /// The longest it makes a wait.
    pub fn longest(&self, wait: Span) -> Span {
        match self {
            Self::None => wait,
            Self::Ratio { ratio } => {
                Span::from_millis(wait.as_millis() + (wait.as_millis() as f64 * ratio) as u64)
            }
            Self::Add { to, .. } => Span::from_millis(wait.as_millis() + to.as_millis()),
        }
    }

    /// The wait with chance applied; `dice` is a uniform random number.
    pub fn apply(&self, wait: Span, dice: u64) -> Span {
        match self {
            Self::None => wait,
            Self::Ratio { ratio } => {
                let spread = (wait.as_millis() as f64 * ratio) as u64;
                if spread == 0 {
                    return wait;
                }
                Span::from_millis(wait.as_millis() - spread + dice % (2 * spread + 1))
            }
            Self::Add { from, to, step } => {
                let grain = step.as_millis().max(1);
                let choices = (to.as_millis() - from.as_millis()) / grain + 1;
                let extra = from.as_millis() + (dice % choices) * grain;
                Span::from_millis(wait.as_millis() + extra)
            }
        }
    }
}

impl Schedule {
    /// When to try again after attempt number `done` of the budget failed at `now`; `None` when
    /// the budget is used up. `asked` is what the receiver wished for, already parsed.
    pub fn next(
        &self,
        done: u32,
        budget_began: Timestamp,
        now: Timestamp,
        asked: Option<Span>,
        dice: u64,
    ) -> Option<Timestamp> {
        if self.max_attempts.is_some_and(|max| done >= max) {
            return None;
        }
        let mut wait = self.jitter.apply(self.backoff.wait(done), dice);
        if let Some(asked) = asked.filter(|_| self.retry_after.honour) {
            wait = wait.max(asked.min(self.retry_after.cap));
        }
        let due = now.plus(wait);
        if self.outlives(budget_began, due) { None } else { Some(due) }
    }

    /// Whether a delivery whose budget began then is too old at a time.
    pub fn outlives(&self, budget_began: Timestamp, at: Timestamp) -> bool {
        match self.max_age {
            None => false,
            Some(MaxAge::Is(age)) => at > budget_began.plus(age),
            // Nearly everything is younger than that, and the sum need not be made.
            Some(MaxAge::Auto) => {
                at > budget_began.plus(AUTO_MIN) && at > budget_began.plus(self.auto_age())
            }
        }
    }

    /// What [`MaxAge::Auto`] means for this schedule.
    fn auto_age(&self) -> Span {
        let longest: u64 = (1..self.max_attempts.unwrap_or(1))
            .map(|done| self.jitter.longest(self.backoff.wait(done)).as_millis())
            .fold(0, u64::saturating_add);
        Span::from_millis(longest.saturating_mul(AUTO_FACTOR)).max(AUTO_MIN)
    }

    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        match self.max_attempts {
            Some(0) => return refuse("schedule.max_attempts", "must be at least 1"),
            Some(n) if n > ATTEMPTS_MAX => {
                return refuse("schedule.max_attempts", format!("must be at most {ATTEMPTS_MAX}"));
            }
            None if !matches!(self.max_age, Some(MaxAge::Is(_))) => {
                return refuse(
                    "schedule",
                    "never ends: set max_attempts, max_age to a duration, or both",
                );
            }
            _ => {}
        }
        let wait_ok = |span: &Span| *span <= WAIT_MAX;
        match &self.backoff {
            Backoff::Fixed { wait } => {
                if !wait_ok(wait) {
                    return refuse("schedule.backoff.fixed.wait", "must be at most 30d");
                }
                if *wait < Span::from_millis(100) && self.max_attempts.is_none() {
                    return refuse(
                        "schedule.backoff.fixed.wait",
                        "must be at least 100ms when max_attempts is not set",
                    );
                }
            }
            Backoff::Exponential { factor, cap, .. } => {
                if !factor.is_finite() || *factor < 1.0 || *factor > 100.0 {
                    return refuse("schedule.backoff.exponential.factor", "must be 1 to 100");
                }
                if !wait_ok(cap) {
                    return refuse("schedule.backoff.exponential.cap", "must be at most 30d");
                }
            }
            Backoff::List { waits } => {
                if waits.is_empty() && self.max_attempts != Some(1) {
                    return refuse("schedule.backoff.list.waits", "must not be empty");
                }
                if !waits.iter().all(wait_ok) {
                    return refuse("schedule.backoff.list.waits", "each must be at most 30d");
                }
            }
        }
        match &self.jitter {
            Jitter::None => {}
            Jitter::Ratio { ratio } => {
                if !(0.0..=1.0).contains(ratio) {
                    return refuse("schedule.jitter.ratio.ratio", "must be 0 to 1");
                }
            }
            Jitter::Add { from, to, step } => {
                if to < from || *step == Span::ZERO {
                    return refuse("schedule.jitter.add", "needs from ≤ to and step above zero");
                }
            }
        }
        Ok(())
    }
}
