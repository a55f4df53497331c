//! Seeded randomness: ids and jitter. One seed, one sequence; the simulator depends on it.

use parking_lot::Mutex;
use posthorn_domain::{
    AuditId, CertificateId, DeliveryId, EventId, JobId, KeyId, NodeId, RedriveId, SessionId,
    SubscriptionId, TenantId, Timestamp,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// By how much the clock may go back before ids go back with it, in milliseconds.
const BACK_MAX: u128 = 1_000;
/// What an id has besides its time: a counter, and below it bits that nobody can guess.
const REST_BITS: u32 = 74;
const GUESS_BITS: u32 = 32;

/// A source of chance.
///
/// Ids of events, and those of deliveries, rise on a node: lists, replays and streams go by them, and what one
/// call publishes must keep its order. Those of one millisecond, and of a clock that was set back a little, go on
/// from the last one: a counter right behind the time, which begins anywhere in each millisecond, and random bits
/// behind it.
pub struct Chance(Mutex<Sequence>);

struct Sequence {
    dice: StdRng,
    events: Rising,
    deliveries: Rising,
}

/// The last id: its time, and the rest.
#[derive(Default)]
struct Rising(u128);

impl Rising {
    /// The time and the random part of the next id.
    fn next(&mut self, at: Timestamp, dice: &mut StdRng) -> (Timestamp, u128) {
        let now = u128::from(at.as_millis().max(0).unsigned_abs());
        let then = self.0 >> REST_BITS;
        let random: u128 = dice.random();
        self.0 = if now > then || then - now > BACK_MAX {
            // The upper half of the counter stays free, for those that follow.
            (now << REST_BITS) | (random & ((1 << (REST_BITS - 1)) - 1))
        } else {
            (((self.0 >> GUESS_BITS) + 1) << GUESS_BITS) | (random & ((1 << GUESS_BITS) - 1))
        };
        let millis = i64::try_from(self.0 >> REST_BITS).unwrap_or(i64::MAX);
        // As the ids take it: twelve bits, two that are not theirs, and sixty-two.
        let rest = ((self.0 >> 62) & 0xFFF) << 64 | (self.0 & ((1 << 62) - 1));
        (Timestamp::from_millis(millis), rest)
    }
}

macro_rules! fresh {
    ($($name:ident -> $kind:ident),* $(,)?) => {
        $(
            /// A fresh id.
            pub fn $name(&self, at: Timestamp) -> $kind {
                $kind::new(at, self.0.lock().dice.random())
            }
        )*
    };
}

macro_rules! rising {
    ($($one:ident, $several:ident -> $kind:ident of $which:ident),* $(,)?) => {
        $(
            /// A fresh id, greater than all before.
            pub fn $one(&self, at: Timestamp) -> $kind {
                let Sequence { dice, $which, .. } = &mut *self.0.lock();
                let (at, rest) = $which.next(at, dice);
                $kind::new(at, rest)
            }

            /// Fresh ids, each greater than the one before.
            pub fn $several(&self, at: Timestamp, count: usize) -> Vec<$kind> {
                let Sequence { dice, $which, .. } = &mut *self.0.lock();
                let ids = std::iter::repeat_with(|| $which.next(at, dice));
                ids.take(count).map(|(at, rest)| $kind::new(at, rest)).collect()
            }
        )*
    };
}

impl Chance {
    /// The sequence of a seed.
    pub fn new(seed: [u8; 32]) -> Self {
        let dice = StdRng::from_seed(seed);
        let (events, deliveries) = (Rising::default(), Rising::default());
        Self(Mutex::new(Sequence { dice, events, deliveries }))
    }

    /// One uniform number.
    pub fn dice(&self) -> u64 {
        self.0.lock().dice.random()
    }

    /// Enough of it for an id, or for a number that nobody else has.
    pub fn bits(&self) -> u128 {
        self.0.lock().dice.random()
    }

    rising! {
        event_id, event_ids -> EventId of events,
        delivery_id, delivery_ids -> DeliveryId of deliveries,
    }

    fresh! {
        audit_id -> AuditId,
        subscription_id -> SubscriptionId,
        tenant_id -> TenantId,
        key_id -> KeyId,
        certificate_id -> CertificateId,
        redrive_id -> RedriveId,
        job_id -> JobId,
        node_id -> NodeId,
        session_id -> SessionId,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn ids_of_one_millisecond_rise() {
        let chance = Chance::new([1; 32]);
        let mut ids = chance.event_ids(at(1_000), 5_000);
        ids.push(chance.event_id(at(1_000)));
        ids.extend(chance.event_ids(at(1_001), 5_000));
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_eq!((ids[5_000].made_at(), ids[5_001].made_at()), (at(1_000), at(1_001)));
        let deliveries = chance.delivery_ids(at(1_000), 5_000);
        assert!(deliveries.is_sorted_by(|a, b| a < b));
        assert!(chance.delivery_id(at(1_000)) > deliveries[4_999]);
    }

    #[test]
    fn a_clock_that_goes_back_a_little_does_not_take_ids_along() {
        let chance = Chance::new([2; 32]);
        let before = chance.event_id(at(10_000));
        let little = chance.event_id(at(9_000));
        assert!(little > before);
        assert_eq!(little.made_at(), at(10_000));
        // Periods are ranges of ids: so much may not be covered up.
        let much = chance.event_id(at(8_999));
        assert_eq!(much.made_at(), at(8_999));
        assert!(chance.event_id(at(8_999)) > much);
    }

    #[test]
    fn nodes_and_milliseconds_begin_anywhere() {
        let (one, other) = (Chance::new([3; 32]), Chance::new([4; 32]));
        assert_ne!(one.event_id(at(5)), other.event_id(at(5)));
        // The next one cannot be told from the last.
        let rest = |id: EventId| u128::from_be_bytes(*id.as_bytes()) & 0xFFFF_FFFF;
        let ids = one.event_ids(at(5), 100);
        let steps: std::collections::BTreeSet<u128> = ids.into_iter().map(rest).collect();
        assert!(steps.len() > 95);
        let starts: std::collections::BTreeSet<u128> = (6..106)
            .map(|millis| {
                (u128::from_be_bytes(*one.event_id(at(millis)).as_bytes()) >> 32) & 0xFFFF
            })
            .collect();
        assert!(starts.len() > 95);
    }

    #[test]
    fn one_seed_is_one_sequence() {
        let ids = || {
            let chance = Chance::new([5; 32]);
            (chance.event_ids(at(1), 10), chance.dice(), chance.delivery_ids(at(0), 10))
        };
        assert_eq!(ids(), ids());
    }
}
