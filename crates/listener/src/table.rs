//! One bucket for each of many, at most so many.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthorn_domain::{Bucket, Rate};

/// How much each of many used of the same rate. Bounded: somebody who is not known costs a row, and
/// when all rows are taken by others, strangers share one.
#[derive(Debug)]
pub struct Table<K> {
    rate: Option<Rate>,
    max: usize,
    rows: Mutex<HashMap<K, Bucket>>,
    /// For those there is no place for.
    rest: Bucket,
}

impl<K: Hash + Eq> Table<K> {
    /// A table of at most `max` rows; without a rate, it refuses nothing.
    pub fn new(rate: Option<Rate>, max: usize) -> Self {
        Self { rate, max, rows: Mutex::default(), rest: Bucket::default() }
    }

    /// Takes one at `now` (nanoseconds of any one clock), or says how long to wait for it.
    pub fn take(&self, key: K, now: u64) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = rows.get(&key) {
            return bucket.take(rate, now);
        }
        if rows.len() >= self.max {
            // Those that have been quiet for long enough are as good as unknown.
            rows.retain(|_, bucket| !bucket.is_full(now));
        }
        if rows.len() >= self.max {
            return self.rest.take(rate, now);
        }
        rows.entry(key).or_default().take(rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_has_its_own_bucket_and_strangers_share_one_when_there_is_no_room() {
        let table: Table<u32> = Table::new(Rate::new(2, Duration::from_secs(60)), 2);
        for key in [1, 2] {
            assert!(table.take(key, 0).is_ok() && table.take(key, 0).is_ok());
            assert!(table.take(key, 0).is_err());
        }
        assert!(table.take(3, 0).is_ok() && table.take(4, 0).is_ok());
        assert!(table.take(5, 0).is_err(), "the strangers' bucket is empty");
        assert_eq!(table.rows.lock().unwrap().len(), 2);
        // Later, the first two have been quiet, and there is room.
        assert!(table.take(5, 120 * SECOND).is_ok());
        assert_eq!(table.rows.lock().unwrap().len(), 1);
    }
}
