//! Token buckets in one word each: how often something may happen, whoever counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So many in so much time, and how many of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// From one to the next, in nanoseconds, when they come evenly.
    gap: u64,
    /// How far ahead of that they may be.
    ahead: u64,
}

impl Rate {
    /// `count` in each `period`, and as many at once. A count of zero is no rate.
    pub fn new(count: u32, period: Duration) -> Option<Self> {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let gap = period.checked_div(u64::from(count))?.max(1);
        Some(Self { gap, ahead: gap.saturating_mul(u64::from(count) - 1) })
    }
}

/// How much of a rate was used: the time at which all that was taken would have been due, had it
/// come evenly. A bucket that was not used for its period is as good as new.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Takes one at `now` (nanoseconds of any one clock), or says how long to wait for it.
    pub fn take(&self, rate: Rate, now: u64) -> Result<(), Duration> {
        let mut due = self.0.load(Ordering::Relaxed);
        loop {
            let start = due.max(now);
            if start - now > rate.ahead {
                return Err(Duration::from_nanos(start - now - rate.ahead));
            }
            let next = start.saturating_add(rate.gap);
            match self.0.compare_exchange_weak(due, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => due = found,
            }
        }
    }

    /// Takes more without asking: whoever took too much waits longer for the next.
    pub fn charge(&self, rate: Rate, now: u64, count: u64) {
        let cost = rate.gap.saturating_mul(count);
        let add = |due: u64| Some(due.max(now).saturating_add(cost));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Whether it is as good as new.
    pub fn is_full(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        let bucket = Bucket::default();
        let taken = |now| (0..100).take_while(|_| bucket.take(rate, now).is_ok()).count();
        assert_eq!(taken(5 * SECOND), 10);
        let wait = bucket.take(rate, 5 * SECOND).expect_err("it is empty");
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(taken(5 * SECOND + SECOND / 10), 1);
        assert_eq!(taken(6 * SECOND), 9);
        assert!(!bucket.is_full(6 * SECOND));
        assert_eq!(taken(60 * SECOND), 10, "unused time is not saved up");
        assert!(bucket.is_full(61 * SECOND));
    }

    #[test]
    fn what_was_charged_must_be_waited_for() {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        let bucket = Bucket::default();
        bucket.take(rate, 0).expect("the first");
        bucket.charge(rate, 0, 99);
        let wait = bucket.take(rate, 0).expect_err("a hundred were taken");
        assert_eq!(wait, Duration::from_millis(9_100));
        assert!(bucket.take(rate, 9_100_000_000).is_ok());
    }

    #[test]
    fn none_is_no_rate() {
        assert_eq!(Rate::new(0, Duration::from_secs(1)), None);
    }
}
