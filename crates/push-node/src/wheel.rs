//! One wheel of timers for all connections of a node.
//!
//! A connection is in the wheel once, at the earliest moment it asked for. When that moment comes, it
//! is asked, and says when to ask again: so moving a timer further away, which happens with every
//! sign of life, costs nothing.

use std::collections::BTreeMap;
use std::sync::Weak;

use parking_lot::Mutex;
use posthorn_domain::{Span, Timestamp};

/// How fine the wheel turns, in milliseconds.
pub(crate) const STEP: i64 = 50;
/// Nobody stays in the wheel for longer without being asked, so that what is left of a connection
/// that ended is not kept for long.
const HORIZON: Span = Span::from_secs(30);

/// The wheel.
pub(crate) struct Wheel<T>(Mutex<BTreeMap<i64, Vec<Weak<T>>>>);

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<T> Wheel<T> {
    /// Puts somebody in. Says when it will be asked, which may be earlier than `at`.
    pub(crate) fn insert(&self, who: Weak<T>, at: Timestamp, now: Timestamp) -> Timestamp {
        let at = at.min(now.plus(HORIZON)).max(now);
        let slot = at.as_millis().div_euclid(STEP) + 1;
        self.0.lock().entry(slot).or_default().push(who);
        Timestamp::from_millis(slot * STEP)
    }

    /// Takes out everybody whose time has come.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Weak<T>> {
        let slot = now.as_millis().div_euclid(STEP);
        let mut slots = self.0.lock();
        let later = slots.split_off(&(slot + 1));
        let due = std::mem::replace(&mut *slots, later);
        drop(slots);
        due.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nobody_is_asked_early_and_nobody_is_forgotten() {
        let wheel = Wheel::default();
        let at = Timestamp::from_millis;
        let now = at(1_000_000);
        let all: Vec<_> = (0..500).map(Arc::new).collect();
        let mut when = Vec::new();
        for (n, who) in all.iter().enumerate() {
            let wanted = at(1_000_000 + i64::try_from(n).expect("small") * 37);
            when.push((wanted, wheel.insert(Arc::downgrade(who), wanted, now)));
        }
        let mut seen = 0;
        for ms in (1_000_000..1_020_000).step_by(10) {
            for who in wheel.due(at(ms)) {
                let n = *who.upgrade().expect("everybody lives");
                let (wanted, promised) = when[n];
                assert!(wanted.as_millis() <= ms && promised.as_millis() <= ms, "{n} was early");
                assert!(ms - wanted.as_millis() <= STEP + 10, "{n} was late");
                seen += 1;
            }
        }
        assert_eq!(seen, all.len());
    }

    #[test]
    fn nobody_stays_longer_than_the_horizon() {
        let wheel = Wheel::default();
        let who = Arc::new(());
        let now = Timestamp::from_millis(5_000);
        let asked = wheel.insert(Arc::downgrade(&who), Timestamp::MAX, now);
        assert!(asked <= now.plus(HORIZON).plus(Span::from_millis(50)));
        assert_eq!(wheel.due(asked).len(), 1);
    }
}
