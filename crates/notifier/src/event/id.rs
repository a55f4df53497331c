//! Ids of events: `evt_` and 24 hexadecimal digits.

use std::sync::atomic::{AtomicU64, Ordering};

use posthorn_domain::Clock;
use rand::TryRng;
use rand::rngs::SysRng;

/// Counts ids without chance.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Bytes of chance in an id.
const RANDOM_BYTES: usize = 12;

/// A fresh id from the system's randomness. Should that fail, the time to the nanosecond stands in:
/// an event with a poorer id is better than none.
pub fn fresh_event_id(clock: &dyn Clock) -> String {
    with_randomness(clock, |bytes| SysRng.try_fill_bytes(bytes).is_ok())
}

fn with_randomness(clock: &dyn Clock, fill: impl FnOnce(&mut [u8]) -> bool) -> String {
    let mut bytes = [0; RANDOM_BYTES];
    if !fill(&mut bytes) {
        // The clock is coarser than a nanosecond; what it leaves open tells ids of one moment apart.
        let within = NEXT.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let nanos = i128::from(clock.now().as_millis()) * 1_000_000 + i128::from(within);
        return format!("evt_{nanos}");
    }
    let mut text = String::with_capacity(4 + 2 * RANDOM_BYTES);
    text.push_str("evt_");
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use posthorn_testkit::clock::StillClock;

    use super::*;

    fn fixed() -> Arc<StillClock> {
        StillClock::at(1_700_000_000_123)
    }

    #[test]
    fn a_thousand_ids_have_the_form_and_differ() {
        let ids: BTreeSet<String> = (0..1_000).map(|_| fresh_event_id(&*fixed())).collect();
        assert_eq!(ids.len(), 1_000);
        for id in &ids {
            assert_eq!(id.len(), 28, "{id}");
            let digits = id.strip_prefix("evt_").expect("the prefix");
            assert!(digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{id}");
        }
    }

    #[test]
    fn all_bytes_of_chance_are_in_the_id() {
        let id = with_randomness(&*fixed(), |bytes| {
            bytes.copy_from_slice(&[0, 1, 2, 0xfe, 0xff, 5, 6, 7, 8, 9, 10, 0xab]);
            true
        });
        assert_eq!(id, "evt_000102feff05060708090aab");
    }

    #[test]
    fn without_randomness_the_time_stands_in() {
        let ids: BTreeSet<String> =
            (0..1_000).map(|_| with_randomness(&*fixed(), |_| false)).collect();
        assert_eq!(ids.len(), 1_000, "and ids of one moment differ");
        assert!(ids.iter().all(|id| id.starts_with("evt_1700000000123")), "{ids:?}");
        assert!(ids.iter().all(|id| id.len() == "evt_1700000000123000000".len()), "{ids:?}");
    }
}
