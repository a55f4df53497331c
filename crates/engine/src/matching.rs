//! Matching: which subscriptions want an event, without keeping anybody else waiting.
//!
//! # Theory of operation
//! What matching an event may cost at most is known beforehand, from the filters of its tenant and the
//! size of its payload. Nearly always that is next to nothing, and it is done on the spot, under the
//! catalog's lock. What may take longer is done on a copy of the list of subscriptions, without the
//! lock; and what may take very long on a thread of its own, where one event of a tenant is matched at
//! a time, tenants take turns, and none gets more than its share of the time. A tenant whose filters
//! are costly waits for itself, and nobody waits for it.
//!
//! What an event costs is counted while it is matched. One that costs more than an event may is refused
//! as a whole: there is no event that only some of those who want it get.
//!
//! # What it must not know
//! Where events are stored, and what becomes of deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::filter::{Candidate, Matching};
use posthorn_domain::{Bucket, CatalogVersion, Event, Lane, Rate, SubscriptionId, TenantId};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::catalog::{Catalog, Check, Map, SubscriptionView};
use crate::error::{Error, Result};
use crate::event_types::compiled::TypeView;
use crate::quotas::Quotas;
use crate::request::EventLookup;

/// What may be matched under the catalog's lock: some tens of microseconds.
pub(crate) const LOCKED_MAX: u64 = 64 << 10;
/// What may be matched on the spot: about a millisecond.
const INLINE_MAX: u64 = 1 << 20;
/// After how much of that others on the same thread get their turn.
const SLICE: u64 = 2 << 20;
/// Publishes of one tenant that may wait for its turn; they hold their payloads in memory.
const WAITING_MAX: usize = 16;
/// When those beyond may try again.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// Tenants that are remembered before those that need no pacing are forgotten.
const TURNS_KEPT: usize = 1_024;
/// In what the use of time is counted.
const CHUNK: u64 = 1 << 10;

/// A plan: which subscriptions want an event, and what that was decided on.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) version: CatalogVersion,
    pub(crate) matches: Vec<Match>,
}

/// One subscription that wants an event.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) subscription: SubscriptionId,
    pub(crate) lane: Option<Lane>,
}

/// All who may want an event, as they were at one version.
pub(crate) struct Audience {
    pub(crate) version: CatalogVersion,
    pub(crate) views: Vec<Arc<SubscriptionView>>,
}

/// How far the catalog itself went.
pub(crate) enum Planned {
    /// It was cheap.
    Done(Plan),
    /// It may cost this much, so it is to be done elsewhere.
    Costly(Audience, u64),
}

/// How much was matched since others had their turn.
#[derive(Default)]
pub(crate) struct Slice(u64);

impl Slice {
    /// Something of this cost is about to be done on the spot: lets others go first when it is their turn.
    pub(crate) async fn spend(&mut self, cost: u64) {
        self.0 += cost;
        if self.0 > SLICE {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Whoever matches.
pub(crate) struct Matcher {
    catalog: Arc<Catalog>,
    quotas: Arc<Quotas>,
    rate: Option<Rate>,
    /// Threads that match at once.
    threads: Arc<Semaphore>,
    turns: Mutex<Map<TenantId, Arc<Turn>>>,
    origin: Instant,
}

/// The turn of one tenant.
#[derive(Default)]
struct Turn {
    taken: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    used: Bucket,
}

/// One that waits for its turn, or has it.
struct Waiting(Arc<Turn>);

/// One whose turn it is, on a thread that is free.
struct Held {
    waiting: Waiting,
    _taken: OwnedMutexGuard<()>,
    _thread: Option<OwnedSemaphorePermit>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Matcher {
    pub(crate) fn new(catalog: Arc<Catalog>, quotas: Arc<Quotas>) -> Self {
        let chunks = u32::try_from(quotas.match_cost_per_second / CHUNK).unwrap_or(u32::MAX);
        // Half of the processors are left to those who need no such thing.
        let threads = std::thread::available_parallelism().map_or(1, |all| all.get() / 2).max(1);
        Self {
            catalog,
            quotas,
            rate: Rate::new(chunks, Duration::from_secs(1)),
            threads: Arc::new(Semaphore::new(threads)),
            turns: Mutex::default(),
            origin: Instant::now(),
        }
    }

    /// Which subscriptions want an event.
    pub(crate) async fn plan(&self, event: &Arc<Event>, slice: &mut Slice) -> Result<Plan> {
        if let Check::Schema(known) = self.catalog.check(event)? {
            self.check_payload(event, &known, slice).await?;
        }
        let (audience, cost) = match self.catalog.plan(event, &self.quotas)? {
            Planned::Done(plan) => return Ok(plan),
            Planned::Costly(audience, cost) => (audience, cost),
        };
        if cost <= INLINE_MAX {
            slice.spend(cost).await;
            let (_, matches) = decide(event, &audience.views, &self.quotas);
            return Ok(Plan { version: audience.version, matches: matches? });
        }
        let (of, quotas) = (Arc::clone(event), Arc::clone(&self.quotas));
        let matches =
            self.aside(event.tenant, move || decide(&of, &audience.views, &quotas)).await?;
        Ok(Plan { version: audience.version, matches: matches? })
    }

    /// Compares a payload with the schemas of its type; where that may take longer, nobody else waits for it.
    async fn check_payload(
        &self,
        event: &Arc<Event>,
        known: &TypeView,
        slice: &mut Slice,
    ) -> Result<()> {
        let schemas = known.compiled().await?;
        let cost = schemas.cost(&event.payload);
        schemas.check_cost(cost)?;
        if cost <= INLINE_MAX {
            slice.spend(cost).await;
            return schemas.check(event);
        }
        let of = Arc::clone(event);
        self.aside(event.tenant, move || (cost, schemas.check(&of))).await?
    }

    /// Which subscriptions want an event whose payload is next to nothing, without waiting for a turn.
    pub(crate) fn here(&self, event: &Event) -> Result<Vec<Match>> {
        self.on_the_spot(event).map(|plan| plan.matches)
    }

    /// The same with the version it was decided on.
    pub(crate) fn on_the_spot(&self, event: &Event) -> Result<Plan> {
        match self.catalog.plan(event, &self.quotas)? {
            Planned::Done(plan) => Ok(plan),
            Planned::Costly(Audience { version, views }, _) => {
                Ok(Plan { version, matches: decide(event, &views, &self.quotas).1? })
            }
        }
    }

    /// Does something that may take long where nobody waits for it, when the tenant's turn has come.
    /// `work` tells what it cost.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        tenant: TenantId,
        work: impl FnOnce() -> (u64, T) + Send + 'static,
    ) -> Result<T> {
        let waiting = self.enter(tenant)?;
        let turn = Arc::clone(&waiting.0);
        let taken = Arc::clone(&turn.taken).lock_owned().await;
        while let Some(wait) = self.rate.and_then(|rate| turn.used.take(rate, self.nanos()).err()) {
            tokio::time::sleep(wait).await;
        }
        let thread = Arc::clone(&self.threads).acquire_owned().await.ok();
        self.elsewhere(Held { waiting, _taken: taken, _thread: thread }, work).await
    }

    /// The same when it is the tenant's turn at this moment, and a thread is free; otherwise nothing is done.
    pub(crate) async fn aside_now<T: Send + 'static>(
        &self,
        tenant: TenantId,
        work: impl FnOnce() -> (u64, T) + Send + 'static,
    ) -> Result<Option<T>> {
        match self.hold_now(tenant) {
            Some(held) => self.elsewhere(held, work).await.map(Some),
            None => Ok(None),
        }
    }

    fn hold_now(&self, tenant: TenantId) -> Option<Held> {
        let waiting = self.enter(tenant).ok()?;
        let taken = Arc::clone(&waiting.0.taken).try_lock_owned().ok()?;
        let thread = Arc::clone(&self.threads).try_acquire_owned().ok()?;
        // Last: it is counted.
        if self.rate.is_some_and(|rate| waiting.0.used.take(rate, self.nanos()).is_err()) {
            return None;
        }
        Some(Held { waiting, _taken: taken, _thread: Some(thread) })
    }

    async fn elsewhere<T: Send + 'static>(
        &self,
        held: Held,
        work: impl FnOnce() -> (u64, T) + Send + 'static,
    ) -> Result<T> {
        let (rate, now) = (self.rate, self.nanos());
        // Whoever asked may go away meanwhile; the turn ends when the work does.
        let done = tokio::task::spawn_blocking(move || {
            let (cost, result) = work();
            if let Some(rate) = rate {
                held.waiting.0.used.charge(rate, now, cost / CHUNK);
            }
            result
        });
        done.await.map_err(|_| Error::Busy("matching crashed; this is a defect"))
    }

    /// Whether something of this cost is better done aside.
    pub(crate) fn is_long(cost: u64) -> bool {
        cost > INLINE_MAX
    }

    fn enter(&self, tenant: TenantId) -> Result<Waiting> {
        let turn = {
            let mut turns = self.turns.lock();
            if turns.len() >= TURNS_KEPT {
                let now = self.nanos();
                turns.retain(|_, turn| Arc::strong_count(turn) > 1 || !turn.used.is_full(now));
            }
            Arc::clone(turns.entry(tenant).or_default())
        };
        let before = turn.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(turn);
        if before >= WAITING_MAX {
            let what = "too many of the tenant's costly events wait to be matched \
                        (quotas.match_cost_per_second)";
            return Err(Error::TooMany { what, wait: BUSY_WAIT });
        }
        Ok(waiting)
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Who of these wants an event, and what it cost to find out.
pub(crate) fn decide<'v>(
    event: &Event,
    views: impl IntoIterator<Item = &'v Arc<SubscriptionView>>,
    quotas: &Quotas,
) -> (u64, Result<Vec<Match>>) {
    let limit = quotas.match_cost_per_event();
    let candidate = Candidate::metered(event, limit);
    let mut wanted: Vec<&Arc<SubscriptionView>> = Vec::new();
    {
        let matching = Matching::new(&candidate);
        for view in views {
            let wants = matching.wants(&view.subscription.filter);
            if candidate.meter().is_spent() {
                return (candidate.meter().spent(), Err(Error::MatchingTooCostly { limit }));
            }
            if wants && !view.switches_off(event) {
                wanted.push(view);
            }
        }
    }
    let cost = candidate.meter().spent();
    let (count, limit) = (wanted.len(), quotas.fan_out());
    if count > limit {
        return (cost, Err(Error::FanOut { count, limit }));
    }
    // One for all, so that a payload is read at most once.
    let known = EventLookup::read(event, candidate.into_json());
    let found = |view: &Arc<SubscriptionView>| Match {
        subscription: view.subscription.id,
        lane: view.lane(&known),
    };
    (cost, Ok(wanted.into_iter().map(found).collect()))
}
