//! How a subscription's receiver is doing: breaker, throttle, concurrency, pace.
//!
//! A receiver that is broken or out of reach opens the breaker. One that says it has too much to do
//! does not: it is throttled, which halves the attempts under way at once and leaves the whole
//! subscription alone for as long as it asked, or for a while that grows. Success widens again, one
//! attempt at a time.
//!
//! Nothing here is written down and nothing here charges an attempt. A breaker only holds work back
//! in memory; the due times in the store stay what they were.

use posthorn_domain::policy::Limits;
use posthorn_domain::{Span, Timestamp};

use super::slots::SLOW_AFTER;

/// Failures in a row that open the breaker.
const OPEN_AFTER: u32 = 8;
/// Failures in a row after which a subscription shares the slots for the sick.
const SICK_AFTER: u32 = 3;
/// How long a breaker first stays open.
const OPEN_FIRST: Span = Span::from_secs(1);
/// How long it stays open at most: so many times what a failed attempt takes, between these two. One
/// that fails at once costs little and is asked often; one that runs into its deadline is not.
const OPEN_FACTOR: u64 = 20;
const OPEN_MAX_QUICK: Span = Span::from_secs(5);
const OPEN_MAX_SLOW: Span = Span::from_secs(300);
/// Attempts under way at once when nothing is known of a receiver yet.
const CONCURRENCY_START: f64 = 8.0;
/// How long an overloaded receiver is left alone at least, and at first when it does not say.
const THROTTLE: Span = Span::from_secs(1);

/// How long a receiver that kept us waiting is known for it when nothing else is heard of it.
const SLOW_KEPT: Span = Span::from_secs(300);

/// The state of one receiver.
pub(super) struct Health {
    /// In a row, of a receiver that is broken or out of reach.
    failures: u32,
    open_for: Span,
    /// In a row, of a receiver that asked for less; attempts of the same moment count once.
    throttles: u32,
    held_until: Timestamp,
    concurrency: f64,
    next_slot_ms: f64,
    /// Until when it counts as slow: the last attempt took long, however it ended.
    slow_until: Timestamp,
}

/// What an attempt says about the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It works.
    Good,
    /// It answered, but did not want this one. It works.
    Refused,
    /// It is broken or out of reach.
    Bad,
    /// It asks for less.
    Overloaded {
        /// For how long, if it said so.
        asked: Option<Span>,
    },
    /// Nothing: the trouble is ours.
    Silent,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            failures: 0,
            open_for: Span::ZERO,
            throttles: 0,
            held_until: Timestamp::MIN,
            concurrency: CONCURRENCY_START,
            next_slot_ms: 0.0,
            slow_until: Timestamp::MIN,
        }
    }
}

impl Health {
    /// Takes note of an attempt; true when the breaker has just opened.
    pub(super) fn note(&mut self, sign: Sign, took: Span, now: Timestamp) -> bool {
        if sign != Sign::Silent {
            let slow = took >= SLOW_AFTER;
            self.slow_until = if slow { now.plus(SLOW_KEPT) } else { Timestamp::MIN };
        }
        match sign {
            Sign::Good | Sign::Refused => {
                self.failures = 0;
                self.throttles = 0;
                self.open_for = Span::ZERO;
                self.concurrency = (self.concurrency + 1.0).min(1_000.0);
                false
            }
            Sign::Silent => false,
            Sign::Overloaded { asked } => {
                self.throttle(asked, took, now);
                false
            }
            Sign::Bad => {
                self.concurrency = (self.concurrency / 2.0).max(1.0);
                self.failed(took, now)
            }
        }
    }

    /// Asks less of a receiver that has too much to do. Without a wish of its own it is asked ever
    /// less often, in proportion to what an answer costs, as with the breaker.
    fn throttle(&mut self, asked: Option<Span>, took: Span, now: Timestamp) {
        // Attempts that were under way when it first said so are news of the same trouble.
        if self.throttles == 0 || now >= self.held_until {
            self.throttles = self.throttles.saturating_add(1);
            self.concurrency = (self.concurrency / 2.0).max(1.0);
        }
        let longest = Span::from_millis(took.as_millis().saturating_mul(OPEN_FACTOR))
            .clamp(OPEN_MAX_QUICK, OPEN_MAX_SLOW);
        let doublings = self.throttles.saturating_sub(1).min(16);
        let unsaid = Span::from_millis(THROTTLE.as_millis() << doublings).min(longest);
        let wait = asked.unwrap_or(unsaid).clamp(THROTTLE, OPEN_MAX_SLOW);
        self.held_until = self.held_until.max(now.plus(wait));
    }

    fn failed(&mut self, took: Span, now: Timestamp) -> bool {
        self.failures = self.failures.saturating_add(1);
        // Attempts that were under way when the breaker opened do not open it further.
        if self.failures < OPEN_AFTER || (self.open_for > Span::ZERO && now < self.held_until) {
            return false;
        }
        let longest = Span::from_millis(took.as_millis().saturating_mul(OPEN_FACTOR));
        let doubled = Span::from_millis(self.open_for.as_millis() * 2).max(OPEN_FIRST);
        self.open_for = doubled.min(longest.clamp(OPEN_MAX_QUICK, OPEN_MAX_SLOW));
        self.held_until = self.held_until.max(now.plus(self.open_for));
        self.concurrency = 1.0;
        true
    }

    /// Nothing starts before this.
    pub(super) fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Holds everything back until then.
    pub(super) fn hold(&mut self, until: Timestamp) {
        self.held_until = self.held_until.max(until);
    }

    /// How many attempts may be under way at once.
    pub(super) fn limit(&self, limits: &Limits) -> u32 {
        #[cfg(feature = "plant")]
        if crate::plant::active(crate::plant::Plant::DoubleConcurrency) {
            return limits.concurrency * 2;
        }
        if self.failures >= OPEN_AFTER {
            1
        } else {
            limits.concurrency.min(self.concurrency as u32)
        }
    }

    /// Whether the breaker lets single attempts through to see if the receiver is back.
    pub(super) fn is_probing(&self) -> bool {
        self.failures.max(self.throttles) >= OPEN_AFTER
    }

    /// Whether it belongs to those that share a small part of the slots.
    pub(super) fn is_sick(&self) -> bool {
        self.failures.max(self.throttles) >= SICK_AFTER
    }

    /// Whether it keeps us waiting, however its attempts end.
    pub(super) fn is_slow(&self, now: Timestamp) -> bool {
        now < self.slow_until
    }

    /// Until when that is worth remembering.
    pub(super) fn slow_until(&self) -> Timestamp {
        self.slow_until
    }

    /// Whether it has not earned more attempts at once than everybody begins with.
    pub(super) fn is_unproven(&self) -> bool {
        self.concurrency <= CONCURRENCY_START
    }

    /// Whether there is nothing worth remembering, except perhaps that it is slow.
    pub(super) fn is_plain(&self, now: Timestamp) -> bool {
        self.failures == 0
            && self.throttles == 0
            && self.held_until <= now
            && self.next_slot_ms <= now.as_millis() as f64
    }

    /// When the rate allows the next attempt.
    pub(super) fn rate_slot(&self, limits: &Limits) -> Timestamp {
        match limits.rate {
            None => Timestamp::MIN,
            Some(_) => Timestamp::from_millis(self.next_slot_ms.ceil() as i64),
        }
    }

    /// Takes one slot of the rate.
    pub(super) fn take_slot(&mut self, limits: &Limits, now: Timestamp) {
        if let Some(rate) = limits.rate {
            let gap = 1_000.0 / rate;
            self.next_slot_ms = self.next_slot_ms.max(now.as_millis() as f64) + gap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn breaker_opens_probes_and_closes() {
        let limits = Limits::default();
        let quick = Span::from_millis(1);
        let mut health = Health::default();
        for _ in 0..OPEN_AFTER - 1 {
            assert!(!health.note(Sign::Bad, quick, at(0)));
        }
        assert!(health.is_sick());
        assert!(health.note(Sign::Bad, quick, at(0)));
        assert_eq!(health.held_until(), at(1_000));
        // A straggler changes nothing; a failed probe doubles the time.
        assert!(!health.note(Sign::Bad, quick, at(10)));
        assert_eq!(health.held_until(), at(1_000));
        assert_eq!(health.limit(&limits), 1);
        assert!(health.note(Sign::Bad, quick, at(1_000)));
        assert_eq!(health.held_until(), at(3_000));
        health.note(Sign::Good, quick, at(3_000));
        assert!(!health.is_sick());
        assert_eq!(health.limit(&limits), 2, "recovery ramps instead of jumping");
    }

    #[test]
    fn slow_failures_hold_longer_than_quick_ones() {
        let longest = |took: Span| {
            let (mut health, mut now) = (Health::default(), at(0));
            for _ in 0..100 {
                health.note(Sign::Bad, took, now);
                now = now.max(health.held_until());
            }
            let before = now;
            health.note(Sign::Bad, took, now);
            health.held_until().since(before)
        };
        assert_eq!(longest(Span::from_millis(2)), Span::from_secs(5));
        assert_eq!(longest(Span::from_secs(1)), Span::from_secs(20));
        assert_eq!(longest(Span::from_secs(20)), Span::from_secs(300));
    }

    #[test]
    fn rate_spreads_attempts() {
        let limits = Limits { rate: Some(4.0), ..Limits::default() };
        let mut health = Health::default();
        assert!(health.rate_slot(&limits) <= at(1_000));
        health.take_slot(&limits, at(1_000));
        assert_eq!(health.rate_slot(&limits), at(1_250));
        health.take_slot(&limits, at(1_250));
        assert_eq!(health.rate_slot(&limits), at(1_500));
    }

    #[test]
    fn overload_is_respected_but_bounded() {
        let mut health = Health::default();
        let asks = |seconds| Sign::Overloaded { asked: Some(Span::from_secs(seconds)) };
        health.note(asks(20), Span::ZERO, at(0));
        assert_eq!(health.held_until(), at(20_000));
        health.note(asks(86_400), Span::ZERO, at(0));
        assert_eq!(health.held_until(), at(300_000));
    }

    #[test]
    fn overload_never_opens_the_breaker_and_narrows_step_by_step() {
        let limits = Limits::default();
        let (mut health, mut now) = (Health::default(), at(0));
        let unsaid = Sign::Overloaded { asked: None };
        let mut seen = Vec::new();
        for _ in 0..12 {
            assert!(!health.note(unsaid, Span::from_millis(5), now), "no breaker opens");
            // What was under way at the same time says nothing new.
            assert!(!health.note(unsaid, Span::from_millis(5), now));
            seen.push((health.limit(&limits), health.held_until().since(now).as_millis()));
            now = health.held_until();
        }
        assert_eq!(seen[..5], [(4, 1_000), (2, 2_000), (1, 4_000), (1, 5_000), (1, 5_000)]);
        assert_eq!(health.failures, 0);
        assert!(health.is_sick(), "it shares the slots of the sick all the same");
        for wider in [2, 3, 4] {
            health.note(Sign::Good, Span::ZERO, now);
            assert_eq!(health.limit(&limits), wider, "one more with each success");
        }
        assert!(!health.is_sick() && health.is_plain(now));

        // A gateway that runs into its own deadline costs much more, and is asked much less often.
        for _ in 0..12 {
            health.note(unsaid, Span::from_secs(15), now);
            now = health.held_until();
        }
        health.note(unsaid, Span::from_secs(15), now);
        assert_eq!(health.held_until().since(now), Span::from_secs(300));
    }

    #[test]
    fn overload_and_failures_are_counted_apart() {
        let (mut health, mut now) = (Health::default(), at(0));
        for _ in 0..OPEN_AFTER - 1 {
            assert!(!health.note(Sign::Bad, Span::ZERO, now));
            health.note(Sign::Overloaded { asked: None }, Span::ZERO, now);
            now = health.held_until();
        }
        assert!(health.note(Sign::Bad, Span::ZERO, now), "the eighth failure in a row");
    }

    #[test]
    fn a_slow_receiver_is_known_for_it_until_it_answers_quickly_or_long_enough() {
        let mut health = Health::default();
        health.note(Sign::Good, Span::from_secs(15), at(0));
        assert!(health.is_slow(at(299_999)) && !health.is_slow(at(300_000)));
        health.note(Sign::Good, Span::from_millis(5), at(1_000));
        assert!(!health.is_slow(at(1_000)));
        assert!(!health.is_unproven());
    }
}
