//! How one tenant's publishes fare: how many wait, for how long, and whether one more would help.
//!
//! Every tenant has a queue of its own in front of the store, and they take turns. So each is judged by
//! the waits of its own publishes: one that publishes faster than its share can be stored is told so, and
//! the others are let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Admission, AdmissionOptions};

/// Publishes of a tenant that may always wait, so that groups can form however slow commits are: with
/// smaller groups fewer would be committed, fewer would be let in, and groups would shrink further.
const WAITING_MIN: usize = 256;
/// Publishes of a tenant that may wait for a group at all. When there are as many, its publishers wait:
/// back-pressure, not memory.
const WAITING_MAX: u32 = 4_096;
/// Over how long the rate of commits is measured.
const RATE_WINDOW: Duration = Duration::from_millis(250);

/// One tenant's publishes.
pub(crate) struct Gauge {
    tenant: TenantId,
    /// Unfinished deliveries, nearly.
    pub(super) pending: AtomicI64,
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
    room: Arc<Semaphore>,
}

/// What commits tell.
struct Pace {
    /// Since when every commit came too late.
    late_since: Option<Instant>,
    window_began: Instant,
    committed: usize,
    per_second: f64,
}

impl Gauge {
    pub(super) fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            pending: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            overloaded: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            pressed: AtomicU64::new(0),
            pace: Mutex::new(Pace {
                late_since: None,
                window_began: Instant::now(),
                committed: 0,
                per_second: 0.0,
            }),
            room: Arc::new(Semaphore::new(WAITING_MAX as usize)),
        }
    }

    /// Waits until there is room for so many more to wait.
    pub(crate) async fn room(&self, events: usize) -> Option<Arc<OwnedSemaphorePermit>> {
        let events = u32::try_from(events).unwrap_or(u32::MAX).min(WAITING_MAX);
        Arc::clone(&self.room).acquire_many_owned(events).await.ok().map(Arc::new)
    }

    /// Whether one more would be one too many. `now` is in milliseconds of the admission's clock.
    pub(super) fn is_pressed(&self, options: &AdmissionOptions, now: u64) -> bool {
        if options.commit_delay.is_zero() {
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
            let patience = options.commit_delay + options.commit_interval;
            let silence = now.saturating_sub(self.progress.load(Ordering::Relaxed));
            Duration::from_millis(silence) > patience
        };
        if pressed {
            self.pressed.store(now, Ordering::Relaxed);
        }
        pressed
    }

    fn is_calm(&self, options: &AdmissionOptions, now: u64) -> bool {
        let calm = now.saturating_sub(self.pressed.load(Ordering::Relaxed));
        Duration::from_millis(calm) >= options.commit_interval
    }

    /// Whether the tenant publishes faster than its share can be stored.
    pub(super) fn is_overloaded(&self, options: &AdmissionOptions, now: u64) -> bool {
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        self.overloaded.load(Ordering::Relaxed) && (waits || !self.is_calm(options, now))
    }

    /// For how long it has been so.
    pub(super) fn overloaded_for(
        &self,
        options: &AdmissionOptions,
        now: (Instant, u64),
    ) -> Option<Duration> {
        if !self.is_overloaded(options, now.1) {
            return None;
        }
        let since = self.pace.lock().late_since.unwrap_or(now.0);
        Some(now.0.saturating_duration_since(since))
    }

    /// A group of its events was committed at `now`; the youngest had waited for `wait`. Tells whether
    /// it is overloaded when that has changed.
    pub(super) fn committed(
        &self,
        options: &AdmissionOptions,
        events: usize,
        wait: Duration,
        now: (Instant, u64),
    ) -> Option<bool> {
        let (now, millis) = now;
        self.progress.store(millis, Ordering::Relaxed);
        if options.commit_delay.is_zero() {
            return None;
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
            if !self.is_calm(options, millis) {
                return None;
            }
            pace.late_since = None;
            self.overloaded.store(false, Ordering::Relaxed);
            info!(tenant = %self.tenant,
                "publishes of a tenant are committed in time again; they are no longer refused");
            return Some(false);
        }
        if wait <= options.commit_delay {
            pace.late_since = None;
            return None;
        }
        let since = *pace.late_since.get_or_insert(now);
        if now.saturating_duration_since(since) < options.commit_interval {
            return None;
        }
        self.pressed.store(millis, Ordering::Relaxed);
        self.overloaded.store(true, Ordering::Relaxed);
        warn!(
            tenant = %self.tenant,
            waiting = self.waiting.load(Ordering::Relaxed),
            per_second = pace.per_second as u64,
            wait_ms = wait.as_millis() as u64,
            "a tenant publishes faster than events can be stored; some publishes are refused from \
             now on"
        );
        Some(true)
    }
}

/// One event that waits for its commit.
pub(crate) struct Ticket {
    pub(super) admission: Arc<Admission>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) since: Instant,
}

impl Ticket {
    pub(super) fn new(admission: &Arc<Admission>, gauge: &Arc<Gauge>, since: Instant) -> Self {
        admission.waiting.fetch_add(1, Ordering::Relaxed);
        if gauge.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            gauge.progress.store(admission.millis(), Ordering::Relaxed);
        }
        Self { admission: Arc::clone(admission), gauge: Arc::clone(gauge), since }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gauge.waiting.fetch_sub(1, Ordering::Relaxed);
        self.admission.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
