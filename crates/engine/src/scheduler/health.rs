//! How a subscription's receiver is doing: breaker, concurrency, holds, pace.
//!
//! A receiver that fails quickly keeps its schedule: an answer of 500 costs next to nothing, and who
//! waits for it is known. Only one whose failures cost slots, because its calls hang or run into their
//! deadline, opens the breaker, where the policy has one. Signs of overload (429, 502, 503, 504, no
//! connection, no answer in time) halve the attempts begun at once; success widens again, one attempt
//! at a time. What a receiver asks for with `Retry-After` holds the whole subscription back.
//!
//! Nothing here is written down and nothing here charges an attempt. A hold keeps work back in memory;
//! the due times in the store stay what they were.

use posthorn_domain::policy::{Breaker, Limits};
use posthorn_domain::{Span, Timestamp, WaitReason, Waiting};

use super::slots::SLOW_AFTER;

/// Failures in a row after which a subscription shares the slots for the failing.
const FAILING_AFTER: u32 = 3;
/// How long a breaker first stays open.
const OPEN_FIRST: Span = Span::from_secs(1);
/// How long it stays open at most: so many times what a failed attempt takes, within what the policy
/// says.
const OPEN_FACTOR: u64 = 20;
/// Attempts begun at once when nothing is known of a receiver yet.
const CONCURRENCY_START: f64 = 8.0;
/// What overload leaves at least, where the policy allows as much: one call that hangs must never stop
/// the others.
const CONCURRENCY_MIN: u32 = 2;
/// What a receiver may ask for with `Retry-After`, for the whole subscription.
const PAUSE_MIN: Span = Span::from_secs(1);
const PAUSE_MAX: Span = Span::from_secs(300);

/// How long a receiver that kept us waiting is known for it when nothing else is heard of it.
const SLOW_KEPT: Span = Span::from_secs(300);

/// Why nothing of a subscription starts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The receiver asked for it.
    RetryAfter,
    /// The breaker is open.
    Breaker,
    /// Something every attempt needs is missing: a token, a mailbox.
    Want,
    /// It is about to be disabled.
    Ending,
}

impl HeldBy {
    pub(super) fn reason(self) -> WaitReason {
        match self {
            Self::RetryAfter => WaitReason::RetryAfter,
            Self::Breaker | Self::Want => WaitReason::Breaker,
            Self::Ending => WaitReason::Disabled,
        }
    }
}

/// The state of one receiver.
pub(super) struct Health {
    /// In a row, whatever they cost.
    failures: u32,
    /// Those of a second or more since the last success.
    costly: u32,
    open_for: Span,
    held_until: Timestamp,
    held_by: HeldBy,
    concurrency: f64,
    /// When it was last lowered: attempts that had begun before say nothing new.
    lowered_at: Timestamp,
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
    /// It is broken.
    Bad,
    /// It has too much to do, or is out of reach.
    Overloaded {
        /// For how long it wants to be left alone, if it said so.
        asked: Option<Span>,
    },
    /// Nothing: the trouble is ours.
    Silent,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            failures: 0,
            costly: 0,
            open_for: Span::ZERO,
            held_until: Timestamp::MIN,
            held_by: HeldBy::Breaker,
            concurrency: CONCURRENCY_START,
            lowered_at: Timestamp::MIN,
            next_slot_ms: 0.0,
            slow_until: Timestamp::MIN,
        }
    }
}

impl Health {
    /// Takes note of an attempt; true when the breaker has just opened.
    pub(super) fn note(
        &mut self,
        sign: Sign,
        took: Span,
        breaker: Option<&Breaker>,
        limits: &Limits,
        now: Timestamp,
    ) -> bool {
        if sign != Sign::Silent {
            let slow = took >= SLOW_AFTER;
            self.slow_until = if slow { now.plus(SLOW_KEPT) } else { Timestamp::MIN };
        }
        match sign {
            Sign::Good | Sign::Refused => {
                self.failures = 0;
                self.costly = 0;
                self.open_for = Span::ZERO;
                let most = f64::from(limits.concurrency).max(self.concurrency);
                self.concurrency = (self.concurrency + 1.0).min(most);
                false
            }
            Sign::Silent => false,
            Sign::Overloaded { asked } => {
                self.lower(limits, now.minus(took), now);
                if let Some(asked) = asked {
                    let asked = asked.clamp(PAUSE_MIN, PAUSE_MAX);
                    self.hold(now.plus(asked), HeldBy::RetryAfter);
                }
                self.failed(took, breaker, now)
            }
            Sign::Bad => self.failed(took, breaker, now),
        }
    }

    /// Halves what may begin at once. Attempts that were under way when the receiver first showed its
    /// trouble are news of the same trouble.
    fn lower(&mut self, limits: &Limits, began: Timestamp, now: Timestamp) {
        if self.lowered_at != Timestamp::MIN && began < self.lowered_at {
            return;
        }
        self.lowered_at = now;
        let present = self.concurrency.min(f64::from(limits.concurrency));
        self.concurrency = (present / 2.0).max(f64::from(CONCURRENCY_MIN));
    }

    fn failed(&mut self, took: Span, breaker: Option<&Breaker>, now: Timestamp) -> bool {
        self.failures = self.failures.saturating_add(1);
        if took < SLOW_AFTER {
            return false;
        }
        self.costly = self.costly.saturating_add(1);
        let Some(breaker) = breaker.filter(|breaker| self.costly >= breaker.open_after) else {
            return false;
        };
        // Attempts that were under way when the breaker opened do not open it further.
        if self.open_for > Span::ZERO && now < self.held_until {
            return false;
        }
        let longest = Span::from_millis(took.as_millis().saturating_mul(OPEN_FACTOR));
        let doubled = Span::from_millis(self.open_for.as_millis() * 2).max(OPEN_FIRST);
        self.open_for = doubled.min(longest).min(breaker.longest);
        self.hold(now.plus(self.open_for), HeldBy::Breaker);
        true
    }

    /// Nothing starts before this.
    pub(super) fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Why.
    pub(super) fn held_by(&self) -> HeldBy {
        self.held_by
    }

    /// Holds everything back until then.
    pub(super) fn hold(&mut self, until: Timestamp, by: HeldBy) {
        if until > self.held_until {
            (self.held_until, self.held_by) = (until, by);
        }
    }

    /// Forgets what was held against it, for when its owner has stopped it: it begins anew.
    pub(super) fn pardon(&mut self) {
        let next_slot_ms = self.next_slot_ms;
        *self = Self { next_slot_ms, ..Self::default() };
    }

    /// The clock was set back by so much: what was measured by it is as far away as it was.
    pub(super) fn set_back(&mut self, by: Span) {
        let times = [&mut self.held_until, &mut self.lowered_at, &mut self.slow_until];
        for time in times.into_iter().filter(|time| **time != Timestamp::MIN) {
            *time = time.minus(by);
        }
        self.next_slot_ms -= by.as_millis() as f64;
    }

    /// How many attempts younger than a second may be under way.
    pub(super) fn limit(&self, limits: &Limits) -> u32 {
        if crate::plant::active("double-concurrency") {
            return limits.concurrency * 2;
        }
        limits.concurrency.min(CONCURRENCY_MIN.max(self.concurrency as u32))
    }

    /// Whether the breaker lets single attempts through to see if the receiver is back.
    pub(super) fn is_probing(&self, breaker: Option<&Breaker>) -> bool {
        breaker.is_some_and(|breaker| self.costly >= breaker.open_after)
    }

    /// Whether it belongs to those that go last when there is not enough for all.
    pub(super) fn is_sick(&self) -> bool {
        self.failures >= FAILING_AFTER
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
        self.failures == 0 && self.held_until <= now && self.next_slot_ms <= now.as_millis() as f64
    }

    /// When the rate allows the next attempt.
    pub(super) fn rate_slot(&self, limits: &Limits) -> Timestamp {
        match limits.rate {
            None => Timestamp::MIN,
            Some(_) => Timestamp::from_millis(self.next_slot_ms.ceil() as i64),
        }
    }

    /// What holds everything back the longest.
    pub(super) fn held(&self, limits: &Limits) -> Waiting {
        match self.rate_slot(limits) {
            slot if slot > self.held_until => Waiting::until(WaitReason::Rate, slot),
            _ => Waiting::until(self.held_by.reason(), self.held_until),
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

    const BREAKER: Breaker = Breaker { open_after: 8, longest: Span::from_secs(300) };
    const QUICK: Span = Span::from_millis(1);
    const SLOW: Span = Span::from_secs(1);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_clock_that_is_set_back_changes_no_wait() {
        let limits = Limits { rate: Some(0.5), ..Limits::default() };
        let mut health = Health::default();
        health.take_slot(&limits, at(100_000));
        health.hold(at(130_000), HeldBy::RetryAfter);
        assert_eq!(health.rate_slot(&limits), at(102_000));
        health.set_back(Span::from_secs(60));
        assert_eq!(health.rate_slot(&limits), at(42_000));
        assert_eq!(health.held_until(), at(70_000));
        assert!(!health.is_slow(at(0)), "what was never measured stays so");
    }

    /// A note under the default limits and a breaker.
    fn note(health: &mut Health, sign: Sign, took: Span, now: Timestamp) -> bool {
        health.note(sign, took, Some(&BREAKER), &Limits::default(), now)
    }

    #[test]
    fn quick_failures_hold_nothing_back() {
        let mut health = Health::default();
        for n in 0..1_000 {
            assert!(!note(&mut health, Sign::Bad, QUICK, at(n)));
        }
        assert_eq!((health.held_until(), health.limit(&Limits::default())), (Timestamp::MIN, 8));
        assert!(health.is_sick() && !health.is_probing(Some(&BREAKER)));
        note(&mut health, Sign::Good, QUICK, at(2_000));
        assert!(!health.is_sick());
    }

    #[test]
    fn failures_that_cost_slots_open_the_breaker_where_there_is_one() {
        let (mut health, mut without) = (Health::default(), Health::default());
        for _ in 0..7 {
            assert!(!note(&mut health, Sign::Bad, SLOW, at(5_000)));
        }
        assert!(note(&mut health, Sign::Bad, SLOW, at(5_000)));
        assert_eq!((health.held_until(), health.held_by()), (at(6_000), HeldBy::Breaker));
        // A straggler changes nothing; a failed probe doubles the time.
        assert!(!note(&mut health, Sign::Bad, SLOW, at(5_010)));
        assert_eq!(health.held_until(), at(6_000));
        assert!(health.is_probing(Some(&BREAKER)) && !health.is_probing(None));
        assert!(note(&mut health, Sign::Bad, SLOW, at(7_000)));
        assert_eq!(health.held_until(), at(9_000));
        note(&mut health, Sign::Good, QUICK, at(10_000));
        assert!(!health.is_probing(Some(&BREAKER)) && !health.is_sick());

        for n in 0..100 {
            let unsaid = Sign::Overloaded { asked: None };
            assert!(!without.note(unsaid, SLOW, None, &Limits::default(), at(n * 1_000)));
        }
        assert_eq!(without.held_until(), Timestamp::MIN);
    }

    #[test]
    fn the_longer_a_failure_takes_the_longer_the_breaker_holds() {
        let longest = |took: Span| {
            let (mut health, mut now) = (Health::default(), at(1_000_000));
            for _ in 0..100 {
                note(&mut health, Sign::Bad, took, now);
                now = now.max(health.held_until());
            }
            let before = now;
            note(&mut health, Sign::Bad, took, now);
            health.held_until().since(before)
        };
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
    fn a_wish_for_a_pause_is_respected_but_bounded() {
        let mut health = Health::default();
        let asks = |seconds| Sign::Overloaded { asked: Some(Span::from_secs(seconds)) };
        note(&mut health, asks(20), Span::ZERO, at(1));
        assert_eq!((health.held_until(), health.held_by()), (at(20_001), HeldBy::RetryAfter));
        note(&mut health, asks(86_400), Span::ZERO, at(1));
        assert_eq!(health.held_until(), at(300_001));
    }

    #[test]
    fn only_overload_narrows_step_by_step_and_never_to_one() {
        let limits = Limits::default();
        let (mut health, mut now) = (Health::default(), at(1_000));
        let unsaid = Sign::Overloaded { asked: None };
        let mut seen = Vec::new();
        for _ in 0..5 {
            note(&mut health, unsaid, Span::from_millis(5), now);
            // What was under way at the same time says nothing new.
            note(&mut health, unsaid, Span::from_millis(5), now.plus(Span::from_millis(1)));
            seen.push(health.limit(&limits));
            now = now.plus(Span::from_millis(10));
        }
        assert_eq!(seen, [4, 2, 2, 2, 2]);
        assert_eq!(health.held_until(), Timestamp::MIN, "the others go on");
        assert_eq!(health.limit(&Limits { concurrency: 1, ..limits.clone() }), 1);
        for wider in [3, 4, 5] {
            note(&mut health, Sign::Good, Span::ZERO, now);
            assert_eq!(health.limit(&limits), wider, "one more with each success");
        }
        assert!(!health.is_sick() && health.is_plain(now));
    }

    #[test]
    fn a_slow_receiver_is_known_for_it_until_it_answers_quickly_or_long_enough() {
        let mut health = Health::default();
        note(&mut health, Sign::Good, Span::from_secs(15), at(0));
        assert!(health.is_slow(at(299_999)) && !health.is_slow(at(300_000)));
        note(&mut health, Sign::Good, Span::from_millis(5), at(1_000));
        assert!(!health.is_slow(at(1_000)));
        assert!(!health.is_unproven());
    }
}
