//! Virtual time, and who asks for it without it going on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use posthorn_domain::{Clock, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

/// When every simulation begins: a moment in June 2025.
const BASE: i64 = 1_750_000_000_000;
/// How often the engines may look at the clock without it going on. Each turn of a scheduler looks a few
/// times; the busiest millisecond of a healthy run has some thousand looks.
const LOOKS_MAX: u64 = 2_000_000;

/// A clock that follows tokio's paused time, perhaps a little off.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    start: Instant,
    skew: i64,
    watch: Arc<Watch>,
}

/// Notices when everybody is busy and nothing happens: paused time only goes on when all wait.
#[derive(Debug, Default)]
struct Watch {
    at: AtomicI64,
    looks: AtomicU64,
    stalled: Notify,
}

impl SimClock {
    /// Begins now; must be called inside the runtime.
    pub(crate) fn begin() -> Self {
        Self { start: Instant::now(), skew: 0, watch: Arc::default() }
    }

    /// The same clock, wrong by so many milliseconds.
    pub(crate) fn skewed(&self, skew: i64) -> Self {
        Self { skew, ..self.clone() }
    }

    /// Milliseconds since the beginning, without skew.
    pub(crate) fn elapsed(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns when the clock was looked at very often without going on.
    pub(crate) async fn stalled(&self) {
        self.watch.stalled.notified().await;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        let watch = &self.watch;
        if watch.at.swap(elapsed, Ordering::Relaxed) != elapsed {
            watch.looks.store(0, Ordering::Relaxed);
        } else if watch.looks.fetch_add(1, Ordering::Relaxed) == LOOKS_MAX {
            watch.stalled.notify_one();
        }
        Timestamp::from_millis(BASE + self.skew + elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_still_is_noticed() {
        let clock = SimClock::begin();
        for _ in 0..3 {
            for _ in 0..LOOKS_MAX {
                clock.now();
            }
            tokio::time::advance(std::time::Duration::from_millis(1)).await;
        }
        let soon = std::time::Duration::from_millis(1);
        let waited = tokio::time::timeout(soon, clock.stalled()).await;
        assert!(waited.is_err(), "time went on");
        for _ in 0..LOOKS_MAX + 2 {
            clock.now();
        }
        clock.stalled().await;
    }
}
