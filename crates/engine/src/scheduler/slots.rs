//! Who may have how many attempts under way.
//!
//! A slot is cheap while attempts are quick and precious when they run into their deadlines: a few
//! receivers that keep us waiting would otherwise hold all of them and stop everybody. So an attempt
//! that has been under way for [`SLOW_AFTER`] gives its slot back to the quick and counts among the
//! slow, of which there is a number of its own. Receivers known to be slow are given slots of the
//! slow from the beginning, those that fail quickly those of the failing.
//!
//! Nobody can tell beforehand which attempt will hang, so no tenant may hold more of anything than a
//! few times what is left of it. Whoever comes next finds room, and what is refused to a tenant is
//! refused only to that one. Quick attempts alone are never held back
//! by it until nearly every slot is theirs.
//!
//! It is a count and nothing else; it must not know subscriptions.

use std::collections::BTreeMap;

use posthorn_domain::{Span, TenantId, Timestamp};

use crate::catalog::Map;

/// An attempt that takes longer is slow, however it ends.
pub(super) const SLOW_AFTER: Span = Span::from_secs(1);
/// The part of all slots that failing subscriptions share in any case.
const FAILING_SHARE: usize = 10;
/// The part they share while nobody quick needs it; what the quick take is taken off.
const FAILING_SHARE_SPARE: usize = 2;
/// The part of all slots that can be taken by those known to be slow. What turns slow under way comes
/// on top of it, within the bound on all attempts.
const SLOW_SHARE: usize = 2;
/// All attempts together, in slots.
const ALL: usize = 2;
/// How many times what is left a tenant may hold, of the slots for quick attempts: one alone gets seven
/// eighths of them.
const TENANT_QUICK: usize = 7;
/// The same for those known to be slow, whose late attempts are all counted: one alone gets a half,
/// which is a quarter of `slots`.
const TENANT_SLOW: usize = 1;
/// The same for the failing: one alone gets three quarters.
const TENANT_FAILING: usize = 3;
/// The same for all attempts together: one alone gets three quarters, and several that hang leave a
/// quarter of what the ones before have left.
const TENANT_ALL: usize = 3;
/// The part of all slots that a tenant's late attempts may take before its unproven receivers are
/// asked with one attempt at a time.
const STRAIN_SHARE: usize = 4;

/// What is known of a receiver when an attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing bad.
    Quick,
    /// It keeps us waiting.
    Slow,
    /// It fails, and quickly.
    Failing,
}

/// One attempt's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    class: Class,
    since: Timestamp,
    tenant: TenantId,
    /// By how much the clock had been set back when it was taken.
    set_back: Span,
}

impl Slot {
    /// Whether its receiver fails.
    pub(super) fn is_sick(self) -> bool {
        self.class == Class::Failing
    }

    /// For an attempt that nobody counts, such as a test.
    pub(crate) const UNCOUNTED: Self = Self {
        class: Class::Quick,
        since: Timestamp::MIN,
        tenant: TenantId::DEFAULT,
        set_back: Span::ZERO,
    };
}

/// Attempts under way, of a tenant or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    quick: usize,
    /// Begun as slow.
    slow: usize,
    /// Begun as quick or failing, and slow by now.
    aged: usize,
    failing: usize,
}

impl Taken {
    fn all(&self) -> usize {
        self.quick + self.slow + self.aged + self.failing
    }
}

/// All slots.
pub(super) struct Slots {
    limit: usize,
    taken: Taken,
    /// Only of those who hold any.
    tenants: Map<TenantId, Taken>,
    /// Quick and failing attempts under way, by when they began, whose they are, and whether failing.
    young: BTreeMap<(Timestamp, TenantId, bool), usize>,
    /// Those that began at this time or before have become slow.
    aged: Timestamp,
    /// By how much the clock was set back, all in all.
    set_back: Span,
}

/// How many more may be taken while what is held stays below `share` times what is left.
fn rest(held: usize, left: usize, share: usize) -> usize {
    (share * left).saturating_sub(held).div_ceil(share + 1)
}

impl Slots {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            taken: Taken::default(),
            tenants: Map::default(),
            young: BTreeMap::new(),
            aged: Timestamp::MIN,
            set_back: Span::ZERO,
        }
    }

    /// Attempts under way.
    pub(super) fn in_flight(&self) -> usize {
        self.taken.all()
    }

    /// Whether one more of this class may begin, whosever it is. Slow ones never take the slots of
    /// quick ones.
    pub(super) fn has_room(&self, class: Class) -> bool {
        self.in_flight() < ALL * self.limit && self.room(class) > 0
    }

    /// How many more of this class may begin, the bound on all of them aside.
    pub(super) fn room(&self, class: Class) -> usize {
        let part = |share: usize| (self.limit / share).max(1);
        match class {
            Class::Quick => self.limit.saturating_sub(self.taken.quick),
            Class::Slow => part(SLOW_SHARE).saturating_sub(self.taken.slow),
            Class::Failing => {
                let spare = part(FAILING_SHARE_SPARE).saturating_sub(self.taken.quick);
                part(FAILING_SHARE).max(spare).saturating_sub(self.taken.failing)
            }
        }
    }

    fn of(&self, tenant: TenantId) -> Taken {
        self.tenants.get(&tenant).copied().unwrap_or_default()
    }

    /// How many more of this class may begin for a tenant.
    pub(super) fn room_of(&self, tenant: TenantId, class: Class) -> usize {
        let held = self.of(tenant);
        let left = (ALL * self.limit).saturating_sub(self.in_flight());
        let (of_class, share) = match class {
            Class::Quick => (held.quick, TENANT_QUICK),
            Class::Slow => (held.slow + held.aged, TENANT_SLOW),
            Class::Failing => (held.failing, TENANT_FAILING),
        };
        rest(held.all(), left, TENANT_ALL).min(rest(of_class, self.room(class), share))
    }

    /// Whether so many of a tenant's attempts are late that its receivers get only one to begin with.
    pub(super) fn is_strained(&self, tenant: TenantId) -> bool {
        let held = self.of(tenant);
        held.slow + held.aged >= (self.limit / STRAIN_SHARE).max(1)
    }

    /// Changes the counts of a tenant and of all.
    fn change(&mut self, tenant: TenantId, change: impl Fn(&mut Taken)) {
        change(&mut self.taken);
        let held = self.tenants.entry(tenant).or_default();
        change(held);
        if held.all() == 0 {
            self.tenants.remove(&tenant);
        }
    }

    pub(super) fn take(&mut self, tenant: TenantId, class: Class, now: Timestamp) -> Slot {
        self.change(tenant, |taken| match class {
            Class::Quick => taken.quick += 1,
            Class::Slow => taken.slow += 1,
            Class::Failing => taken.failing += 1,
        });
        let mut slot = Slot { class, since: now, tenant, set_back: self.set_back };
        if class != Class::Slow {
            // Never in the past of the last look, should the clock have gone back.
            slot.since = now.max(self.aged.plus(Span::from_millis(1)));
            *self.young.entry((slot.since, tenant, class == Class::Failing)).or_default() += 1;
        }
        slot
    }

    /// When a slot was taken, by the clock as it is now.
    pub(super) fn since(&self, slot: Slot) -> Timestamp {
        let later = self.set_back.as_millis().saturating_sub(slot.set_back.as_millis());
        slot.since.minus(Span::from_millis(later))
    }

    /// The clock was set back: what is under way is as old as it was.
    pub(super) fn set_back(&mut self, by: Span) {
        self.set_back = Span::from_millis(self.set_back.as_millis().saturating_add(by.as_millis()));
        self.aged = self.aged.minus(by);
        let young = std::mem::take(&mut self.young);
        self.young = young
            .into_iter()
            .map(|((at, whose, failing), n)| ((at.minus(by), whose, failing), n))
            .collect();
    }

    pub(super) fn free(&mut self, slot: Slot) {
        let since = self.since(slot);
        let aged = since <= self.aged;
        self.change(slot.tenant, |taken| match slot.class {
            Class::Slow => taken.slow -= 1,
            Class::Quick | Class::Failing if aged => taken.aged -= 1,
            Class::Failing => taken.failing -= 1,
            Class::Quick => taken.quick -= 1,
        });
        let key = (since, slot.tenant, slot.class == Class::Failing);
        if slot.class != Class::Slow
            && !aged
            && let Some(count) = self.young.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.young.remove(&key);
            }
        }
    }

    /// Counts among the slow what has taken too long by now.
    pub(super) fn age(&mut self, now: Timestamp) {
        let until = now.minus(SLOW_AFTER);
        while let Some(entry) = self.young.first_entry()
            && entry.key().0 <= until
        {
            let ((_, tenant, failing), turned) = entry.remove_entry();
            self.change(tenant, |taken| {
                let from = if failing { &mut taken.failing } else { &mut taken.quick };
                *from -= turned;
                taken.aged += turned;
            });
        }
        self.aged = self.aged.max(until);
    }

    /// When the next quick or failing attempt becomes slow, if it does not end before.
    pub(super) fn next_aging(&self) -> Option<Timestamp> {
        self.young.first_key_value().map(|((since, ..), _)| since.plus(SLOW_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn tenant(n: u128) -> TenantId {
        TenantId::new(Timestamp::MIN, n)
    }

    /// Starts what a tenant may.
    fn fill(slots: &mut Slots, of: TenantId, class: Class, now: i64) -> Vec<Slot> {
        let mut taken = Vec::new();
        while slots.has_room(class) && slots.room_of(of, class) > 0 {
            taken.push(slots.take(of, class, at(now)));
        }
        taken
    }

    #[test]
    fn attempts_that_take_long_give_their_slots_to_the_quick() {
        let mut slots = Slots::new(10);
        let waiting: Vec<Slot> =
            (0..10).map(|_| slots.take(TENANT, Class::Quick, at(5_000))).collect();
        assert!(!slots.has_room(Class::Quick));
        slots.age(at(5_999));
        assert!(!slots.has_room(Class::Quick));
        assert_eq!(slots.next_aging(), Some(at(6_000)));
        slots.age(at(6_000));
        assert_eq!((slots.room(Class::Quick), slots.in_flight()), (10, 10));
        assert!(slots.is_strained(TENANT) && !slots.is_strained(tenant(2)));
        for slot in waiting {
            slots.free(slot);
        }
        assert_eq!((slots.room(Class::Slow), slots.in_flight()), (5, 0));
        assert!(slots.tenants.is_empty() && slots.young.is_empty());
    }

    #[test]
    fn one_tenant_alone_gets_nearly_everything() {
        let mut slots = Slots::new(512);
        assert_eq!(fill(&mut slots, TENANT, Class::Quick, 0).len(), 448);
        assert_eq!(fill(&mut slots, TENANT, Class::Slow, 0).len(), 128);
        assert_eq!(fill(&mut slots, TENANT, Class::Failing, 0).len(), 39);
        for small in 1..8 {
            let mut slots = Slots::new(small);
            assert_eq!(fill(&mut slots, TENANT, Class::Quick, 0).len(), small);
        }
    }

    #[test]
    fn when_whole_tenants_hang_the_next_one_finds_room_of_every_kind_at_once() {
        let mut slots = Slots::new(512);
        let mut taken = Vec::new();
        for n in 1..=4 {
            // Whatever a tenant starts hangs, second after second.
            for second in 0..20 {
                let now = (i64::try_from(n).expect("small") * 100 + second) * 1_000;
                slots.age(at(now));
                for class in [Class::Quick, Class::Slow, Class::Failing] {
                    for kind in [Class::Quick, Class::Slow, Class::Failing] {
                        assert!(slots.has_room(kind), "{n}: {kind:?}");
                        assert!(slots.room_of(tenant(99), kind) > 0, "{n}: {kind:?}");
                    }
                    taken.extend(fill(&mut slots, tenant(n), class, now));
                }
            }
            if n == 1 {
                assert_eq!(slots.in_flight(), 768, "a quarter is left to others");
            }
        }
        assert!(slots.in_flight() < 1_024);
        taken.into_iter().for_each(|slot| slots.free(slot));
        assert_eq!(slots.in_flight(), 0);
        assert!(slots.tenants.is_empty() && slots.young.is_empty());
    }

    #[test]
    fn the_sick_get_more_while_the_quick_need_little() {
        let mut slots = Slots::new(512);
        assert_eq!(slots.room(Class::Failing), 256);
        for _ in 0..300 {
            slots.take(TENANT, Class::Quick, at(0));
        }
        assert_eq!(slots.room(Class::Failing), 51);
    }

    #[test]
    fn all_together_are_bounded() {
        let mut slots = Slots::new(4);
        let mut taken = Vec::new();
        for second in 1..10 {
            slots.age(at(second * 2_000));
            for n in 1..=20 {
                taken.extend(fill(&mut slots, tenant(n), Class::Quick, second * 2_000));
            }
        }
        assert_eq!(slots.in_flight(), 8);
        assert!(!slots.has_room(Class::Failing));
        taken.into_iter().for_each(|slot| slots.free(slot));
        assert_eq!(slots.in_flight(), 0);
        assert!(slots.has_room(Class::Failing));
    }

    #[test]
    fn what_is_under_way_ages_on_when_the_clock_is_set_back() {
        let mut slots = Slots::new(4);
        slots.age(at(100_000));
        let before = slots.take(TENANT, Class::Quick, at(100_000));
        slots.set_back(Span::from_secs(90));
        assert_eq!(slots.since(before), at(10_000));
        let after = slots.take(TENANT, Class::Failing, at(10_100));
        assert_eq!(slots.next_aging(), Some(at(11_000)));
        slots.age(at(11_050));
        assert_eq!(slots.next_aging(), Some(at(11_100)));
        slots.age(at(11_100));
        assert_eq!((slots.room(Class::Quick), slots.in_flight()), (4, 2));
        slots.free(before);
        slots.free(after);
        assert_eq!(slots.in_flight(), 0);
        assert!(slots.tenants.is_empty() && slots.young.is_empty());
    }

    #[test]
    fn a_clock_that_goes_back_confuses_nobody() {
        let mut slots = Slots::new(4);
        slots.age(at(100_000));
        let early = slots.take(TENANT, Class::Quick, at(50_000));
        let later = slots.take(TENANT, Class::Quick, at(100_000));
        slots.age(at(50_500));
        slots.free(early);
        slots.age(at(101_000));
        slots.free(later);
        assert_eq!(slots.in_flight(), 0);
        assert_eq!(slots.next_aging(), None);
    }
}
