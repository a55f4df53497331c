//! One API key as this node knows it: the record, when it was used here, and how much.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use posthorn_domain::{ApiKey, KeyId, Timestamp};

use crate::admission::{Admission, Bucket, Rate};

/// Uses are remembered to this precision, so that a busy key changes memory once in a while only.
const PRECISION_MS: i64 = 60_000;

/// A key and its use on this node. A new version of the record goes on with the old one's use.
pub struct KnownKey {
    record: ApiKey,
    usage: Arc<Usage>,
}

#[derive(Default)]
struct Usage {
    /// The minute of the last use; zero: never.
    used_at: AtomicI64,
    /// Whether that was written down.
    written: AtomicBool,
    bucket: Bucket,
}

impl Deref for KnownKey {
    type Target = ApiKey;

    fn deref(&self) -> &ApiKey {
        &self.record
    }
}

impl KnownKey {
    pub(crate) fn new(record: ApiKey) -> Self {
        Self { record, usage: Arc::default() }
    }

    /// The same key with another record.
    pub(crate) fn with(&self, record: ApiKey) -> Self {
        Self { record, usage: Arc::clone(&self.usage) }
    }

    /// Notes that it was used.
    pub(crate) fn touch(&self, now: Timestamp) {
        let minute = now.as_millis() / PRECISION_MS * PRECISION_MS;
        if self.usage.used_at.load(Ordering::Relaxed) < minute {
            self.usage.used_at.store(minute, Ordering::Relaxed);
            self.usage.written.store(false, Ordering::Release);
        }
    }

    /// When it was last used on this node, since its start and to the minute.
    pub fn used_at(&self) -> Option<Timestamp> {
        let at = self.usage.used_at.load(Ordering::Relaxed);
        (at != 0).then(|| Timestamp::from_millis(at))
    }

    pub(crate) fn use_to_write(&self) -> Option<(KeyId, Timestamp)> {
        let at = self.used_at()?;
        (!self.usage.written.swap(true, Ordering::AcqRel)).then_some((self.record.id, at))
    }

    pub(crate) fn keep_use(&self) {
        self.usage.written.store(false, Ordering::Release);
    }

    /// How many requests a second it may send; zero means any number.
    pub fn requests_per_second(&self, admission: &Admission) -> u32 {
        self.record.rate_limit.unwrap_or(admission.options().key_requests_per_second)
    }

    fn rate(&self, admission: &Admission) -> Option<Rate> {
        Rate::new(self.requests_per_second(admission), Duration::from_secs(1))
    }

    /// Counts one request against its rate, or says how long to wait.
    pub fn take(&self, admission: &Admission) -> Result<(), Duration> {
        match self.rate(admission) {
            Some(rate) => self.usage.bucket.take(rate, admission.nanos()),
            None => Ok(()),
        }
    }

    /// Counts more against its rate without asking, as for the events of a batch that was let in.
    pub fn charge(&self, admission: &Admission, count: u64) {
        if let Some(rate) = self.rate(admission) {
            self.usage.bucket.charge(rate, admission.nanos(), count);
        }
    }
}
