//! Admission: what is not let in, so that those who are let in are served.
//!
//! # Theory of operation
//! [`Admission::publish`] is asked before a publish is read. It looks at three things, all in memory:
//!
//! * **The wait for a commit.** Every commit tells how long the youngest of its group had waited.
//!   When that stays above the target for a whole interval, publishes come faster than they can be
//!   stored, and a longer queue would make everybody wait longer and serve nobody sooner. From then
//!   on only as many may wait as are committed within the target time, by the rate measured last;
//!   the others are refused at once. It ends when an interval passed in which nobody was refused. A
//!   store that commits nothing at all for an interval counts as overloaded too.
//! * **The tenant's unfinished deliveries.** Those in shards that this node holds are counted as
//!   they are accepted and end. What ends on another node is not noticed here, so it is not counted
//!   here either: a count of the store every few seconds ([`counts`]) brings it in and puts the rest
//!   right. Publishes that are on their way when the quota is reached are still stored, so it may be
//!   exceeded by what waits for a commit and by what is accepted for, or on, other nodes between two
//!   counts. When the store could not count several times in a row, nobody is refused for a number
//!   that may have become wrong since.
//! * **The disk**, of which somebody else tells.
//!
//! # What it must not know
//! Keys, addresses and connections: those are limited where they come in.

pub(crate) mod counts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use posthorn_domain::{SHARD_COUNT, Shard, TenantId};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::catalog::Map;
use crate::metrics;

pub use posthorn_domain::{Bucket, Rate};

/// Publishes that may always wait, so that groups can form however slow commits are: with smaller
/// groups fewer would be committed, fewer would be let in, and groups would shrink further.
const WAITING_MIN: usize = 256;
/// Counts of the store that may fail in a row before their last result is too old to refuse anybody.
const COUNT_FAILURES_MAX: u32 = 3;
/// Over how long the rate of commits is measured.
const RATE_WINDOW: Duration = Duration::from_millis(250);

/// Knobs of admission. Zero switches a limit off.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// How long a publish may wait for its commit.
    pub commit_delay: Duration,
    /// For how long waits must be longer before anybody is refused.
    pub commit_interval: Duration,
    /// Unfinished deliveries of one tenant.
    pub pending_quota: u64,
    /// How often the count of them is put right, at most.
    pub pending_refresh: Duration,
    /// Requests per second of a key that has no limit of its own; zero means no limit.
    pub key_rate: u32,
    /// Tests and rehearsals of subscriptions a minute of one tenant; zero means no limit.
    pub tests: u32,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            commit_delay: Duration::from_millis(100),
            commit_interval: Duration::from_secs(1),
            pending_quota: 10_000_000,
            pending_refresh: Duration::from_secs(5),
            key_rate: 50_000,
            tests: 30,
        }
    }
}

/// Why a publish is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Publishes come faster than they can be stored.
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
    /// How many may, while it is overloaded.
    limit: AtomicUsize,
    overloaded: AtomicBool,
    /// When something was last committed, or began to wait while nothing else did.
    progress: AtomicU64,
    /// When somebody was last refused, or would have been.
    pressed: AtomicU64,
    pace: Mutex<Pace>,
    disk_full: AtomicBool,
    pending: RwLock<Map<TenantId, Arc<AtomicI64>>>,
    /// The shards whose deliveries begin and end on this node.
    shards: Box<[AtomicBool]>,
    /// Counts of the store that failed in a row.
    count_failures: AtomicU32,
}

/// What commits tell.
struct Pace {
    /// Since when every commit came too late.
    late_since: Option<Instant>,
    window_began: Instant,
    committed: usize,
    per_second: f64,
}

impl Admission {
    pub(crate) fn new(options: AdmissionOptions) -> Self {
        let now = Instant::now();
        Self {
            options,
            origin: now,
            waiting: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            overloaded: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            pressed: AtomicU64::new(0),
            pace: Mutex::new(Pace {
                late_since: None,
                window_began: now,
                committed: 0,
                per_second: 0.0,
            }),
            disk_full: AtomicBool::new(false),
            pending: RwLock::default(),
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
        if self.is_pressed() {
            return Err(Refused::Overloaded);
        }
        let quota = self.options.pending_quota;
        if quota > 0 && self.is_counted() {
            let pending = self.pending(tenant);
            if pending >= quota {
                return Err(Refused::Quota { pending, quota });
            }
        }
        Ok(())
    }

    /// Whether the next publish would be one too many: what can be asked before anything of it is
    /// looked at, so that refusing costs next to nothing.
    pub fn is_pressed(&self) -> bool {
        if self.options.commit_delay.is_zero() {
            return false;
        }
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting < WAITING_MIN {
            return false;
        }
        let pressed = if self.overloaded.load(Ordering::Relaxed) {
            waiting >= self.limit.load(Ordering::Relaxed)
        } else {
            // Nothing was committed for so long that nobody could tell of late commits.
            let patience = self.options.commit_delay + self.options.commit_interval;
            let silence = self.millis().saturating_sub(self.progress.load(Ordering::Relaxed));
            Duration::from_millis(silence) > patience
        };
        if pressed {
            self.pressed.store(self.millis(), Ordering::Relaxed);
        }
        pressed
    }

    /// Whether publishes come faster than they can be stored.
    pub fn is_overloaded(&self) -> bool {
        self.overloaded.load(Ordering::Relaxed)
    }

    /// Says whether the disk is too full to take anything in.
    pub fn set_disk_full(&self, full: bool) {
        self.disk_full.store(full, Ordering::Relaxed);
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
                info!("unfinished deliveries are counted again; the quota is enforced");
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
        let pending = self.pending.read();
        let count = pending.get(&tenant).map_or(0, |count| count.load(Ordering::Relaxed));
        u64::try_from(count).unwrap_or(0)
    }

    fn tally(&self, tenant: TenantId) -> Arc<AtomicI64> {
        if let Some(count) = self.pending.read().get(&tenant) {
            return Arc::clone(count);
        }
        Arc::clone(self.pending.write().entry(tenant).or_default())
    }

    /// Deliveries were made (or, below zero, ended).
    pub(crate) fn add_pending(&self, tenant: TenantId, change: i64) {
        if self.options.pending_quota > 0 && change != 0 {
            self.tally(tenant).fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Something begins to wait for its commit, until the ticket is dropped.
    pub(crate) fn wait(self: &Arc<Self>, since: Instant) -> Ticket {
        if self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.progress.store(self.millis(), Ordering::Relaxed);
        }
        Ticket { admission: Arc::clone(self), since }
    }

    /// A group of events was committed; the youngest had waited since `youngest`.
    pub(crate) fn committed(&self, events: usize, youngest: Instant) {
        let now = Instant::now();
        self.progress.store(self.millis(), Ordering::Relaxed);
        let wait = now.saturating_duration_since(youngest);
        ::metrics::histogram!(metrics::COMMIT_WAIT_SECONDS).record(wait.as_secs_f64());
        ::metrics::gauge!(metrics::WAITING).set(self.waiting() as f64);
        let options = &self.options;
        if options.commit_delay.is_zero() {
            return;
        }
        let mut pace = self.pace.lock();
        pace.committed += events;
        let window = now.saturating_duration_since(pace.window_began);
        if window >= RATE_WINDOW {
            let sample = pace.committed as f64 / window.as_secs_f64();
            // Half of what was, half of what is: four windows forget an idle time.
            pace.per_second =
                if pace.per_second == 0.0 { sample } else { (pace.per_second + sample) / 2.0 };
            (pace.window_began, pace.committed) = (now, 0);
            let limit = (pace.per_second * options.commit_delay.as_secs_f64()) as usize;
            self.limit.store(limit.max(WAITING_MIN), Ordering::Relaxed);
        }
        if self.overloaded.load(Ordering::Relaxed) {
            let calm = self.millis().saturating_sub(self.pressed.load(Ordering::Relaxed));
            if Duration::from_millis(calm) >= options.commit_interval {
                pace.late_since = None;
                self.overloaded.store(false, Ordering::Relaxed);
                ::metrics::gauge!(metrics::OVERLOADED).set(0.0);
                info!("publishes are committed in time again; nobody is refused any more");
            }
            return;
        }
        if wait <= options.commit_delay {
            pace.late_since = None;
            return;
        }
        let since = *pace.late_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= options.commit_interval {
            self.pressed.store(self.millis(), Ordering::Relaxed);
            self.overloaded.store(true, Ordering::Relaxed);
            ::metrics::gauge!(metrics::OVERLOADED).set(1.0);
            warn!(
                waiting = self.waiting.load(Ordering::Relaxed),
                per_second = pace.per_second as u64,
                wait_ms = wait.as_millis() as u64,
                "publishes come faster than they can be stored; some are refused from now on"
            );
        }
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

/// One event that waits for its commit.
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    pub(crate) since: Instant,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.admission.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
