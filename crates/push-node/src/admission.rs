//! How fast sockets are let in: after a node went away, all of its agents come at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whoever would have to wait for longer is sent away, and comes back by itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// So much of a second's worth may come at one moment.
const BURST: Duration = Duration::from_millis(250);

/// Lets somebody in at an even pace.
pub(crate) struct Pace {
    gap: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many per second; zero for any number.
    pub(crate) fn new(per_second: u32) -> Self {
        let gap = Duration::from_secs(1).checked_div(per_second).unwrap_or(Duration::ZERO);
        Self { gap, next: Mutex::new(None) }
    }

    /// Until when the next one has to wait; `None` when that is too long.
    pub(crate) fn place(&self, now: Instant) -> Option<Instant> {
        let mut next = self.next.lock();
        // What was not used for a while is not saved up, but for a short burst.
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        if at > now + PATIENCE {
            return None;
        }
        *next = Some(at + self.gap);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_spread_out_and_its_end_is_sent_away() {
        let pace = Pace::new(100);
        let now = Instant::now();
        let places: Vec<_> = (0..1_000).map(|_| pace.place(now)).collect();
        let let_in: Vec<_> = places.iter().flatten().collect();
        // A quarter of a second at once, then three seconds' worth.
        assert!((320..=330).contains(&let_in.len()), "{}", let_in.len());
        let at_once = let_in.iter().filter(|at| ***at <= now).count();
        assert!((25..=26).contains(&at_once), "{at_once}");
        assert!(places[500].is_none() && places[999].is_none());
        // A second later there is room for another second's worth.
        let later = now + Duration::from_secs(1);
        let more = (0..1_000).filter_map(|_| pace.place(later)).count();
        assert!((99..=101).contains(&more), "{more}");
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let pace = Pace::new(0);
        let now = Instant::now();
        assert!((0..10_000).all(|_| pace.place(now).is_some_and(|at| at <= now)));
    }
}
