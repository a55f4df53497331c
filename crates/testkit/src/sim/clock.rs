//! Virtual time.

use posthorn_domain::{Clock, Timestamp};
use tokio::time::Instant;

/// When every simulation begins: a moment in June 2025.
const BASE: i64 = 1_750_000_000_000;

/// A clock that follows tokio's paused time, perhaps a little off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimClock {
    start: Instant,
    skew: i64,
}

impl SimClock {
    /// Begins now; must be called inside the runtime.
    pub(crate) fn begin() -> Self {
        Self { start: Instant::now(), skew: 0 }
    }

    /// The same clock, wrong by so many milliseconds.
    pub(crate) fn skewed(self, skew: i64) -> Self {
        Self { skew, ..self }
    }

    /// Milliseconds since the beginning, without skew.
    pub(crate) fn elapsed(self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(BASE + self.skew + self.elapsed())
    }
}
