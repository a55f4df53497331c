//! Whether there is capacity to spare, and what the failing get when there is not.
//!
//! The scarce thing is rarely a slot: it is the processor. How long an attempt waits for one, from when
//! it is given away until it begins, or a publish before it is committed, says how busy the machine is, whoever keeps it
//! busy. While that is long and there is healthy work, failing receivers are asked at a small share of its pace; else they
//! keep their own. Publishing is healthy work, whoever gets the events.
//!
//! It is a judgement and nothing else; it must not know subscriptions.

use std::time::Duration;

use posthorn_domain::{Span, Timestamp};

/// Attempts that wait longer than this on average: on an idle machine it is a tenth of that.
const BUSY: Duration = Duration::from_micros(500);
/// How much one attempt changes the average.
const WEIGHT: f64 = 1.0 / 32.0;
/// For how long they count as waiting after they did. A busy machine has moments in which nobody waits; whoever used each
/// of them would be many.
const STAYS_BUSY: Span = Span::from_millis(100);
/// For how long healthy work that began counts as present.
const PRESENT: Span = Span::from_secs(1);
/// How often those who were refused ask again, should nothing else happen.
const ASK_AGAIN: Span = Span::from_millis(200);
/// Attempts of the healthy, or deliveries published, for one of the failing while there is nothing to spare.
const HEALTHY_FOR_ONE: f64 = 256.0;
/// What the failing get in any case, all together, each second.
const LEAST_PER_SECOND: f64 = 50.0;
/// What they may save up.
const SAVED_MAX: f64 = 50.0;

/// How busy the machine is.
pub(super) struct Pressure {
    /// The average wait of healthy attempts, in seconds.
    wait: f64,
    busy_until: Timestamp,
    healthy_at: Timestamp,
    saved: f64,
    saved_at: Timestamp,
}

impl Default for Pressure {
    fn default() -> Self {
        Self {
            wait: 0.0,
            busy_until: Timestamp::MIN,
            healthy_at: Timestamp::MIN,
            saved: SAVED_MAX,
            saved_at: Timestamp::MIN,
        }
    }
}

impl Pressure {
    /// A healthy attempt had waited so long for a processor. The failing do not count: many that fail at once would make
    /// the machine look idle.
    pub(super) fn heard(&mut self, waited: Duration, now: Timestamp) {
        self.wait += (waited.as_secs_f64() - self.wait) * WEIGHT;
        if self.wait > BUSY.as_secs_f64() {
            self.busy_until = now.plus(STAYS_BUSY);
        }
    }

    /// So many deliveries were published, after a wait for a processor: somebody is served whatever becomes
    /// of them.
    pub(super) fn published(&mut self, deliveries: usize, waited: Duration, now: Timestamp) {
        self.heard(waited, now);
        self.served(deliveries, now);
    }

    fn served(&mut self, count: usize, now: Timestamp) {
        self.healthy_at = now;
        self.saved = (self.saved + count as f64 / HEALTHY_FOR_ONE).min(SAVED_MAX);
    }

    /// An attempt begins.
    pub(super) fn began(&mut self, failing: bool, now: Timestamp) {
        if failing {
            self.saved = (self.saved - 1.0).max(0.0);
        } else {
            self.served(1, now);
        }
    }

    /// Whether there is healthy work and nothing to spare.
    fn is_high(&self, now: Timestamp) -> bool {
        now < self.busy_until && now < self.healthy_at.plus(PRESENT)
    }

    /// How many failing ones may begin now.
    pub(super) fn room(&mut self, now: Timestamp) -> usize {
        if !self.is_high(now) {
            return usize::MAX;
        }
        let passed = now.since(self.saved_at).as_millis() as f64 / 1_000.0;
        self.saved_at = now;
        self.saved = (self.saved + passed * LEAST_PER_SECOND).min(SAVED_MAX);
        self.saved as usize
    }

    /// When those who were refused should ask again, should nothing else happen.
    pub(super) fn next_room(&self, now: Timestamp) -> Timestamp {
        now.plus(ASK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_failing_are_free_unless_the_healthy_wait_for_a_processor() {
        let mut pressure = Pressure::default();
        pressure.began(false, at(1_000));
        assert_eq!(pressure.room(at(1_000)), usize::MAX);
        let busy = |pressure: &mut Pressure, now| {
            (0..100).for_each(|_| pressure.heard(Duration::from_millis(20), now));
        };
        busy(&mut pressure, at(1_000));
        assert_eq!(pressure.room(at(1_000)), 50);
        (0..50).for_each(|_| pressure.began(true, at(1_000)));
        assert_eq!(pressure.room(at(1_000)), 0);
        (0..512).for_each(|_| pressure.began(false, at(1_000)));
        assert_eq!(pressure.room(at(1_000)), 2, "a share of what the healthy do");
        assert_eq!(pressure.room(at(1_099)), 6, "and a little in any case");
        busy(&mut pressure, at(1_950));
        assert_eq!(pressure.room(at(2_000)), usize::MAX, "nobody healthy is there");
    }

    #[test]
    fn publishing_counts_as_work_that_the_failing_must_not_hold_up() {
        let mut pressure = Pressure::default();
        pressure.published(1, Duration::ZERO, at(1_000));
        assert_eq!(pressure.room(at(1_000)), usize::MAX, "nobody waits");
        (0..100).for_each(|_| pressure.published(1, Duration::from_millis(20), at(1_000)));
        assert_eq!(pressure.room(at(1_000)), 50);
        (0..50).for_each(|_| pressure.began(true, at(1_000)));
        pressure.published(512, Duration::from_millis(20), at(1_000));
        assert_eq!(pressure.room(at(1_000)), 2, "a share of what is published");
        assert_eq!(pressure.room(at(2_000)), usize::MAX, "nobody publishes any more");
    }

    #[test]
    fn a_moment_in_which_nobody_waits_is_no_capacity_to_spare() {
        let mut pressure = Pressure::default();
        pressure.began(false, at(1_000));
        (0..100).for_each(|_| pressure.heard(Duration::from_millis(20), at(1_000)));
        // The average forgets half in 22 attempts.
        (0..500).for_each(|_| pressure.heard(Duration::ZERO, at(1_001)));
        assert_eq!(pressure.room(at(1_050)), 50, "it was busy just now");
        assert_eq!(pressure.room(at(1_101)), usize::MAX, "there is capacity to spare");
    }
}
