//! Where tokens are kept: for each tenant apart, and of each a bounded number, so that what one tenant
//! keeps costs no other time or memory.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::{TenantId, Timestamp};

use super::Entry;
use crate::catalog::Map;

/// Entries of a tenant above which those that are over are thrown out.
const ENTRIES_TIDY: usize = 1_024;
/// Entries of a tenant at most; beyond it the oldest goes.
const ENTRIES_MAX: usize = 65_536;
/// How many of the oldest are looked at for one that nobody uses right now.
const EVICTION_TRIES: usize = 16;

/// What a token is for: tenant, and a fingerprint of all that the token server is told.
pub(super) type Key = (TenantId, [u8; 32]);

/// All entries.
#[derive(Default)]
pub(super) struct Cache(Mutex<Map<TenantId, Shelf>>);

/// The entries of one tenant.
struct Shelf {
    entries: Map<[u8; 32], Arc<Entry>>,
    /// The same, oldest first.
    order: VecDeque<[u8; 32]>,
    /// The size at which it is tidied next: twice what the last time left, so that tidying costs a few
    /// steps for each entry however many are alive.
    tidy_at: usize,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { entries: Map::default(), order: VecDeque::new(), tidy_at: ENTRIES_TIDY }
    }
}

fn in_use(entry: &Arc<Entry>) -> bool {
    Arc::strong_count(entry) > 1
}

impl Shelf {
    /// Throws out what is over; says how many entries were looked at.
    fn tidy(&mut self, now: Timestamp) -> usize {
        let looked = self.entries.len();
        self.entries.retain(|_, entry| in_use(entry) || entry.is_alive(now));
        self.order.retain(|key| self.entries.contains_key(key));
        self.tidy_at = (2 * self.entries.len()).max(ENTRIES_TIDY);
        looked
    }

    /// Makes room for one more; says how many entries were looked at.
    fn make_room(&mut self, now: Timestamp) -> usize {
        if self.entries.len() < self.tidy_at.min(ENTRIES_MAX) {
            return 0;
        }
        if self.entries.len() < ENTRIES_MAX {
            return self.tidy(now);
        }
        for looked in 1..=EVICTION_TRIES {
            let Some(oldest) = self.order.pop_front() else { return looked };
            if self.entries.get(&oldest).is_some_and(in_use) {
                self.order.push_back(oldest);
            } else {
                self.entries.remove(&oldest);
                return looked;
            }
        }
        EVICTION_TRIES
    }

    fn get(&mut self, key: [u8; 32], now: Timestamp) -> (Arc<Entry>, usize) {
        if let Some(entry) = self.entries.get(&key) {
            return (Arc::clone(entry), 0);
        }
        let looked = self.make_room(now);
        let entry = Arc::new(Entry::default());
        // With no room at all it serves those who ask for it now and is not kept.
        if self.entries.len() < ENTRIES_MAX {
            self.entries.insert(key, Arc::clone(&entry));
            self.order.push_back(key);
        }
        (entry, looked)
    }
}

impl Cache {
    /// The entry of a key, which is made if need be.
    pub(super) fn entry(&self, (tenant, key): Key, now: Timestamp) -> Arc<Entry> {
        self.0.lock().entry(tenant).or_default().get(key, now).0
    }

    /// The entry of a key, if there is one.
    pub(super) fn find(&self, (tenant, key): &Key) -> Option<Arc<Entry>> {
        self.0.lock().get(tenant)?.entries.get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::Span;
    use posthorn_sealing::vault::Secret;

    fn key(n: usize) -> [u8; 32] {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn put(shelf: &mut Shelf, n: usize, life: Span) -> usize {
        let now = Timestamp::from_millis(0);
        let (entry, looked) = shelf.get(key(n), now);
        entry.state.lock().held = Some(super::super::Held {
            token: Arc::new(Secret::from("token")),
            renew_at: now.plus(life),
            valid_until: now.plus(life),
        });
        looked
    }

    #[test]
    fn many_tokens_that_are_alive_cost_a_few_steps_each() {
        let mut shelf = Shelf::default();
        let live = 50_000;
        let looked: usize = (0..live).map(|n| put(&mut shelf, n, Span::from_secs(3_600))).sum();
        assert_eq!(shelf.entries.len(), live);
        assert!(looked <= 4 * live, "{looked} steps");
    }

    #[test]
    fn what_is_over_is_thrown_out_and_the_number_is_bounded() {
        let mut shelf = Shelf::default();
        for n in 0..10 * ENTRIES_TIDY {
            put(&mut shelf, n, Span::ZERO);
        }
        assert!(shelf.entries.len() <= ENTRIES_TIDY);
        assert_eq!(shelf.order.len(), shelf.entries.len());
        let held: Vec<_> =
            (0..EVICTION_TRIES - 1).map(|n| shelf.get(key(n), Timestamp::MIN).0).collect();
        for n in 0..2 * ENTRIES_MAX {
            put(&mut shelf, n, Span::from_secs(3_600));
            assert!(shelf.entries.len() <= ENTRIES_MAX);
        }
        assert_eq!((shelf.entries.len(), shelf.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        for (n, entry) in held.iter().enumerate() {
            assert!(shelf.entries.get(&key(n)).is_some_and(|kept| Arc::ptr_eq(kept, entry)), "{n}");
        }
        assert!(!shelf.entries.contains_key(&key(ENTRIES_TIDY)), "the oldest went");
    }
}
