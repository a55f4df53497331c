//! Who may have how many attempts under way.
//!
//! A slot is cheap while attempts are quick and precious when they run into their deadlines: a few
//! receivers that keep us waiting would otherwise hold all of them and stop everybody. So an attempt
//! that has been under way for [`SLOW_AFTER`] gives its slot back to the quick and counts among the
//! slow, of which there is a number of its own. Receivers known to be slow are given slots of the
//! slow from the beginning, failing ones those of the sick.
//!
//! It is a count and nothing else; it must not know subscriptions.

use std::collections::BTreeMap;

use posthorn_domain::{Span, Timestamp};

/// An attempt that takes longer is slow, however it ends.
pub(super) const SLOW_AFTER: Span = Span::from_secs(1);
/// The part of all slots that sick subscriptions share.
const SICK_SHARE: usize = 10;
/// The part of all slots that can be taken by those known to be slow. What turns slow under way comes
/// on top of it, within the bound of [`Slots::has_room`].
const SLOW_SHARE: usize = 2;

/// What is known of a receiver when an attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing bad.
    Quick,
    /// It keeps us waiting.
    Slow,
    /// It fails.
    Sick,
}

/// One attempt's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    class: Class,
    since: Timestamp,
}

impl Slot {
    /// For an attempt that nobody counts, such as a test.
    pub(crate) const UNCOUNTED: Self = Self { class: Class::Quick, since: Timestamp::MIN };

    /// When it was taken.
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }
}

/// All slots.
pub(super) struct Slots {
    limit: usize,
    quick: usize,
    slow: usize,
    sick: usize,
    /// Quick attempts under way, by when they began.
    young: BTreeMap<Timestamp, usize>,
    /// Quick attempts that began at this time or before have become slow.
    aged: Timestamp,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Self {
        let (limit, young) = (limit.max(1), BTreeMap::new());
        Self { limit, quick: 0, slow: 0, sick: 0, young, aged: Timestamp::MIN }
    }

    /// Attempts under way.
    pub(super) fn in_flight(&self) -> usize {
        self.quick + self.slow + self.sick
    }

    /// Whether one more of this class may begin. Slow ones never take the slots of quick ones; all
    /// together are at most twice the limit.
    pub(super) fn has_room(&self, class: Class) -> bool {
        self.in_flight() < 2 * self.limit && self.room(class) > 0
    }

    /// How many more of this class may begin, the bound on all of them aside.
    pub(super) fn room(&self, class: Class) -> usize {
        match class {
            Class::Quick => self.limit.saturating_sub(self.quick),
            Class::Slow => (self.limit / SLOW_SHARE).max(1).saturating_sub(self.slow),
            Class::Sick => (self.limit / SICK_SHARE).max(1).saturating_sub(self.sick),
        }
    }

    pub(super) fn take(&mut self, class: Class, now: Timestamp) -> Slot {
        match class {
            Class::Quick => {
                // Never in the past of the last look, should the clock have gone back.
                let since = now.max(self.aged.plus(Span::from_millis(1)));
                self.quick += 1;
                *self.young.entry(since).or_default() += 1;
                return Slot { class, since };
            }
            Class::Slow => self.slow += 1,
            Class::Sick => self.sick += 1,
        }
        Slot { class, since: now }
    }

    pub(super) fn free(&mut self, slot: Slot) {
        match slot.class {
            Class::Sick => self.sick -= 1,
            Class::Slow => self.slow -= 1,
            Class::Quick if slot.since <= self.aged => self.slow -= 1,
            Class::Quick => {
                self.quick -= 1;
                if let Some(count) = self.young.get_mut(&slot.since) {
                    *count -= 1;
                    if *count == 0 {
                        self.young.remove(&slot.since);
                    }
                }
            }
        }
    }

    /// Counts among the slow what has taken too long by now.
    pub(super) fn age(&mut self, now: Timestamp) {
        let until = now.minus(SLOW_AFTER);
        while let Some(entry) = self.young.first_entry()
            && *entry.key() <= until
        {
            let turned = entry.remove();
            self.quick -= turned;
            self.slow += turned;
        }
        self.aged = self.aged.max(until);
    }

    /// When the next quick attempt becomes slow, if it does not end before.
    pub(super) fn next_aging(&self) -> Option<Timestamp> {
        self.young.first_key_value().map(|(since, _)| since.plus(SLOW_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn attempts_that_take_long_give_their_slots_to_the_quick() {
        let mut slots = Slots::new(10);
        let waiting: Vec<Slot> = (0..10).map(|_| slots.take(Class::Quick, at(5_000))).collect();
        assert!(!slots.has_room(Class::Quick));
        slots.age(at(5_999));
        assert!(!slots.has_room(Class::Quick));
        assert_eq!(slots.next_aging(), Some(at(6_000)));
        slots.age(at(6_000));
        assert_eq!((slots.room(Class::Quick), slots.in_flight()), (10, 10));
        assert!(!slots.has_room(Class::Slow), "those known to be slow wait for them");
        for slot in waiting {
            slots.free(slot);
        }
        assert_eq!((slots.room(Class::Slow), slots.in_flight()), (5, 0));
    }

    #[test]
    fn all_together_are_bounded() {
        let mut slots = Slots::new(4);
        let mut taken = Vec::new();
        for second in 1..10 {
            slots.age(at(second * 2_000));
            while slots.has_room(Class::Quick) {
                taken.push(slots.take(Class::Quick, at(second * 2_000)));
            }
        }
        assert_eq!(slots.in_flight(), 8);
        assert!(!slots.has_room(Class::Sick));
        taken.into_iter().for_each(|slot| slots.free(slot));
        assert_eq!(slots.in_flight(), 0);
        assert!(slots.has_room(Class::Sick));
    }

    #[test]
    fn a_clock_that_goes_back_confuses_nobody() {
        let mut slots = Slots::new(4);
        slots.age(at(100_000));
        let early = slots.take(Class::Quick, at(50_000));
        let later = slots.take(Class::Quick, at(100_000));
        slots.age(at(50_500));
        slots.free(early);
        slots.age(at(101_000));
        slots.free(later);
        assert_eq!(slots.in_flight(), 0);
        assert_eq!(slots.next_aging(), None);
    }
}
