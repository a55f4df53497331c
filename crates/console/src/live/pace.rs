//! How often pages may be told to ask for themselves again: so seldom that all of them together leave the machine to deliveries.
//!
//! One page costs some milliseconds, more on a busy machine. What they cost is measured as pages are made, and words to tabs are
//! spaced accordingly: a few tabs are told at once, fifty tabs of a server that delivers as much as it can every few seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The part of one processor that live pages may take, for each processor there is.
const SHARE: f64 = 0.03;
/// However many there are, a tab does not wait longer.
const GAP_MAX: Duration = Duration::from_secs(30);
/// How slowly the average follows: each page counts for one part of so many.
const PARTS: u64 = 16;

/// What pages cost, and how often they may be made for it.
pub(super) struct Pace {
    /// How long a page takes on the average, in microseconds.
    page_us: AtomicU64,
    processors: f64,
}

impl Default for Pace {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { page_us: AtomicU64::new(0), processors: processors as f64 }
    }
}

impl Pace {
    /// A page was made in so long.
    pub(super) fn took(&self, span: Duration) {
        let own = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        // Two pages at once may lose one of them: it is an average.
        let before = self.page_us.load(Ordering::Relaxed);
        let after = if before == 0 { own } else { before - before / PARTS + own / PARTS };
        self.page_us.store(after, Ordering::Relaxed);
    }

    /// The least time between two words to a tab, where so many listen.
    pub(super) fn gap(&self, tabs: usize, least: Duration) -> Duration {
        let page = Duration::from_micros(self.page_us.load(Ordering::Relaxed));
        let all = page.as_secs_f64() * tabs as f64 / (SHARE * self.processors);
        Duration::from_secs_f64(all).clamp(least, GAP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(1);

    fn pace(page: Duration) -> Pace {
        let pace = Pace { page_us: AtomicU64::new(0), processors: 2.0 };
        for _ in 0..200 {
            pace.took(page);
        }
        pace
    }

    #[test]
    fn few_tabs_are_told_at_once_and_many_seldom() {
        let pace = pace(Duration::from_millis(6));
        assert_eq!(pace.gap(1, LEAST), LEAST);
        assert_eq!(pace.gap(5, LEAST), LEAST);
        let many = pace.gap(50, LEAST);
        assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(&many), "{many:?}");
        assert_eq!(pace.gap(100_000, LEAST), GAP_MAX);
    }

    #[test]
    fn the_average_follows_what_pages_cost() {
        let pace = pace(Duration::from_millis(20));
        let slow = pace.gap(50, LEAST);
        for _ in 0..200 {
            pace.took(Duration::from_millis(2));
        }
        let quick = pace.gap(50, LEAST);
        assert!(quick < slow / 5, "{quick:?} after {slow:?}");
    }

    #[test]
    fn nothing_known_is_no_reason_to_wait() {
        assert_eq!(Pace::default().gap(200, LEAST), LEAST);
    }
}
