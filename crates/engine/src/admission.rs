//! Admission: what is not let in, so that those who are let in are served.
//!
//! # Theory of operation
//! [`Admission::publish`] is asked before a publish is read. It looks at three things, all in memory:
//!
//! * **The wait for a commit**, of each tenant by itself (`gauge`): tenants take turns at the store, so
//!   one that publishes too fast waits for itself. Every commit tells how long the youngest of a
//!   tenant's events in it had waited. When that stays above the target for a whole interval, the
//!   tenant's publishes come faster than they can be stored, and a longer queue would make them wait
//!   longer and serve none sooner. From then on only as many may wait as are committed within the
//!   target time, by the rate measured last; the others are refused at once. It ends when an interval
//!   passed in which nobody was refused. A store that commits nothing at all for an interval counts as
//!   overloaded too.
//! * **The tenant's unfinished deliveries.** Those in shards that this node holds are counted as
//!   they are accepted and end. What ends on another node is not noticed here, so it is not counted
//!   here either: a count of the store every few seconds (`counts`) brings it in and puts the rest
//!   right. Publishes that are on their way when the quota is reached are still stored, so it may be
//!   exceeded by what waits for a commit and by what is accepted for, or on, other nodes between two
//!   counts. When the store could not count several times in a row, nobody is refused for a number
//!   that may have become wrong since.
//! * **The disk**, of which somebody else tells.
//!
//! # What it must not know
//! Keys, addresses and connections: those are limited where they come in.

pub(crate) mod counts;
mod gauge;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use posthorn_domain::{SHARD_COUNT, Shard, TenantId, setting};
use serde::Deserialize;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::catalog::Map;
use crate::metrics;

pub use posthorn_domain::{Bucket, Rate};

pub(crate) use gauge::{Gauge, Ticket};

/// Counts of the store that may fail in a row before their last result is too old to refuse anybody.
const COUNT_FAILURES_MAX: u32 = 3;

/// Knobs of admission, a part of the section `admission` of the configuration. Zero switches a limit off.
#[derive(Clone, Debug, Deserialize)]
pub struct AdmissionOptions {
    /// How long a publish may wait for its commit.
    #[serde(deserialize_with = "setting::time")]
    pub commit_delay: Duration,
    /// For how long waits must be longer before anybody is refused.
    #[serde(deserialize_with = "setting::some_time")]
    pub commit_interval: Duration,
    /// Unfinished deliveries of one tenant.
    pub pending_per_tenant: u64,
    /// How often the count of them is put right, at most.
    #[serde(deserialize_with = "setting::some_time")]
    pub pending_count_interval: Duration,
    /// Requests per second of a key that has no limit of its own; zero means no limit.
    pub key_requests_per_second: u32,
    /// Tests and rehearsals of subscriptions a minute of one tenant; zero means no limit.
    pub tests_per_minute: u32,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            commit_delay: Duration::from_millis(100),
            commit_interval: Duration::from_secs(1),
            pending_per_tenant: 10_000_000,
            pending_count_interval: Duration::from_secs(5),
            key_requests_per_second: 50_000,
            tests_per_minute: 30,
        }
    }
}

/// Why a publish is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The tenant's publishes come faster than they can be stored.
    Overloaded,
    /// The tenant has too many unfinished deliveries.
    Quota {
        /// How many it has, nearly.
        pending: u64,
        /// How many it may have.
        quota: u64,
    },
    /// The disk is nearly full.
    DiskFull,
}

/// Who is let in.
pub struct Admission {
    options: AdmissionOptions,
    origin: Instant,
    /// Events that wait for their commit.
    waiting: AtomicUsize,
    disk_full: AtomicBool,
    /// Since when, in milliseconds of its own clock; only while it is.
    disk_full_since: AtomicU64,
    /// How full the disk is, in percent, and one; 0 while nobody has looked.
    disk_used: AtomicU8,
    /// How long the youngest of the last group had waited for its commit, in microseconds, and one; 0 before the first.
    commit_wait: AtomicU64,
    /// How full the disk is, in percent, from where that is worth telling; 0 while it is not.
    disk_near: AtomicU8,
    gauges: RwLock<Map<TenantId, Arc<Gauge>>>,
    /// The shards whose deliveries begin and end on this node.
    shards: Box<[AtomicBool]>,
    /// Counts of the store that failed in a row.
    count_failures: AtomicU32,
}

impl Admission {
    pub(crate) fn new(options: AdmissionOptions) -> Self {
        Self {
            options,
            origin: Instant::now(),
            waiting: AtomicUsize::new(0),
            disk_full: AtomicBool::new(false),
            disk_full_since: AtomicU64::new(0),
            disk_used: AtomicU8::new(0),
            commit_wait: AtomicU64::new(0),
            disk_near: AtomicU8::new(0),
            gauges: RwLock::default(),
            shards: (0..SHARD_COUNT).map(|_| AtomicBool::new(false)).collect(),
            count_failures: AtomicU32::new(0),
        }
    }

    /// Its knobs.
    pub fn options(&self) -> &AdmissionOptions {
        &self.options
    }

    /// Nanoseconds since this was made, for [`Bucket`]s.
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a publish of this tenant is let in. To be asked before its body is read.
    pub fn publish(&self, tenant: TenantId) -> Result<(), Refused> {
        if self.disk_full.load(Ordering::Relaxed) {
            return Err(Refused::DiskFull);
        }
        let gauges = self.gauges.read();
        let Some(gauge) = gauges.get(&tenant) else { return Ok(()) };
        if gauge.is_pressed(&self.options, self.millis()) {
            return Err(Refused::Overloaded);
        }
        let quota = self.options.pending_per_tenant;
        if quota > 0 && self.is_counted() {
            let pending = u64::try_from(gauge.pending.load(Ordering::Relaxed)).unwrap_or(0);
            if pending >= quota {
                return Err(Refused::Quota { pending, quota });
            }
        }
        Ok(())
    }

    /// Whether publishes of some tenant come faster than they can be stored.
    pub fn is_overloaded(&self) -> bool {
        let now = self.millis();
        self.gauges.read().values().any(|gauge| gauge.is_overloaded(&self.options, now))
    }

    /// Says whether the disk is too full to take anything in.
    pub fn set_disk_full(&self, full: bool) {
        if !self.disk_full.swap(full, Ordering::Relaxed) {
            self.disk_full_since.store(self.millis(), Ordering::Relaxed);
        }
    }

    /// For how long the disk has been too full to take anything in; nothing while it is not.
    pub fn disk_full_for(&self) -> Option<Duration> {
        let since = self.disk_full_since.load(Ordering::Relaxed);
        self.is_disk_full().then(|| Duration::from_millis(self.millis().saturating_sub(since)))
    }

    /// Says how full the disk is, in percent.
    pub fn set_disk_used(&self, used_percent: u8) {
        self.disk_used.store(used_percent.min(100) + 1, Ordering::Relaxed);
    }

    /// How full the disk is, in percent, as it was found last.
    pub fn disk_used(&self) -> Option<u8> {
        self.disk_used.load(Ordering::Relaxed).checked_sub(1)
    }

    /// How long the publish waited that was committed last.
    pub fn commit_wait(&self) -> Option<Duration> {
        self.commit_wait.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }

    /// For how long the publishes of some tenant have come faster than they can be stored; nothing while none do.
    pub fn overloaded_for(&self) -> Option<Duration> {
        let now = (Instant::now(), self.millis());
        let gauges = self.gauges.read();
        gauges.values().filter_map(|gauge| gauge.overloaded_for(&self.options, now)).max()
    }

    /// Says how full the disk is, in percent, when that is worth telling.
    pub fn set_disk_near_full(&self, used_percent: Option<u8>) {
        self.disk_near.store(used_percent.unwrap_or(0), Ordering::Relaxed);
    }

    /// How full the disk is, in percent, when that is worth telling.
    pub(crate) fn disk_near_full(&self) -> Option<u8> {
        Some(self.disk_near.load(Ordering::Relaxed)).filter(|percent| *percent > 0)
    }

    /// Tenants that have at least this part, in percent, of the unfinished deliveries they may have.
    pub(crate) fn most_pending(&self, quota: u64, percent: u64) -> Vec<(TenantId, u64)> {
        if quota == 0 || !self.is_counted() {
            return Vec::new();
        }
        let gauges = self.gauges.read();
        let count = |gauge: &Gauge| {
            u64::try_from(gauge.pending.load(Ordering::Relaxed)).unwrap_or_default()
        };
        let near =
            |pending: u64| u128::from(pending) * 100 >= u128::from(quota) * u128::from(percent);
        let all = gauges.iter().map(|(tenant, gauge)| (*tenant, count(gauge)));
        let mut found: Vec<_> = all.filter(|(_, pending)| near(*pending)).collect();
        found.sort_unstable();
        found
    }

    /// Whether the disk is too full to take anything in.
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Whether the counts are recent enough to refuse anybody for them.
    fn is_counted(&self) -> bool {
        self.count_failures.load(Ordering::Relaxed) < COUNT_FAILURES_MAX
    }

    /// The store has counted, or could not.
    fn counted(&self, success: bool) {
        if success {
            if self.count_failures.swap(0, Ordering::Relaxed) >= COUNT_FAILURES_MAX {
                info!("unfinished deliveries can be counted again; the quota is enforced");
            }
        } else if self.count_failures.fetch_add(1, Ordering::Relaxed) + 1 == COUNT_FAILURES_MAX {
            warn!("the counts of unfinished deliveries are too old; the quota is not enforced");
        }
    }

    /// Says whether the deliveries of a shard begin and end on this node from now on.
    pub(crate) fn set_held(&self, shard: Shard, held: bool) {
        self.shards[usize::from(shard.number())].store(held, Ordering::Relaxed);
    }

    /// Whether the deliveries of a shard are counted on this node.
    pub(crate) fn counts(&self, shard: Shard) -> bool {
        self.shards[usize::from(shard.number())].load(Ordering::Relaxed)
    }

    /// Unfinished deliveries of a tenant, nearly.
    pub fn pending(&self, tenant: TenantId) -> u64 {
        let gauges = self.gauges.read();
        let count = gauges.get(&tenant).map_or(0, |gauge| gauge.pending.load(Ordering::Relaxed));
        u64::try_from(count).unwrap_or(0)
    }

    /// How a tenant's publishes fare.
    pub(crate) fn gauge(&self, tenant: TenantId) -> Arc<Gauge> {
        if let Some(gauge) = self.gauges.read().get(&tenant) {
            return Arc::clone(gauge);
        }
        let new = || Arc::new(Gauge::new(tenant));
        Arc::clone(self.gauges.write().entry(tenant).or_insert_with(new))
    }

    /// Deliveries were made (or, below zero, ended).
    pub(crate) fn add_pending(&self, tenant: TenantId, change: i64) {
        if self.options.pending_per_tenant > 0 && change != 0 {
            self.gauge(tenant).pending.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Something begins to wait for its commit, until the ticket is dropped.
    pub(crate) fn wait(self: &Arc<Self>, gauge: &Arc<Gauge>, since: Instant) -> Ticket {
        Ticket::new(self, gauge, since)
    }

    /// A group of a tenant's events was committed; the youngest had waited since `youngest`.
    pub(crate) fn committed(&self, gauge: &Gauge, events: usize, youngest: Instant) {
        let now = Instant::now();
        let wait = now.saturating_duration_since(youngest);
        ::metrics::histogram!(metrics::COMMIT_WAIT_SECONDS).record(wait.as_secs_f64());
        ::metrics::gauge!(metrics::WAITING).set(self.waiting() as f64);
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX - 1);
        self.commit_wait.store(micros + 1, Ordering::Relaxed);
        if gauge.committed(&self.options, events, wait, (now, self.millis())).is_some() {
            self.tell_overload();
        }
    }

    fn tell_overload(&self) {
        ::metrics::gauge!(metrics::OVERLOADED).set(if self.is_overloaded() { 1.0 } else { 0.0 });
    }

    /// Events that wait for their commit.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Changes of counts, gathered while they are of one tenant; most batches are.
pub(crate) struct Tally<'a> {
    admission: &'a Admission,
    tenant: TenantId,
    change: i64,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(admission: &'a Admission) -> Self {
        Self { admission, tenant: TenantId::DEFAULT, change: 0 }
    }

    pub(crate) fn add(&mut self, tenant: TenantId, change: i64) {
        if tenant != self.tenant {
            self.admission.add_pending(self.tenant, self.change);
            (self.tenant, self.change) = (tenant, 0);
        }
        self.change += change;
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.admission.add_pending(self.tenant, self.change);
    }
}

#[cfg(test)]
mod tests;
