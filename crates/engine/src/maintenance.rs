//! Chores: sweeping what nobody wants, pruning what nobody needs, putting dead letters back.
//!
//! Chores for the whole store are done by whoever holds the first shard, in small bites, so that the
//! hot path never waits long for them. Jobs run beside them, in rounds of their own ([`crate::job_rounds`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    CertificateKind, Clock, RealmName, RollupScope, RollupStep, Shard, Span, TenantId,
};
use posthorn_store::{Prune, Store, TendRollups};
use tracing::{debug, warn};

use crate::catalog::Catalog;
use crate::error::chain;
use crate::metrics;
use crate::options::Options;
use crate::policy_log::PolicyLog;
use crate::redriver::Redriver;
use crate::rollups::{Counting, FOLD_AFTER};
use crate::wakes::Wakes;

/// Rows touched in one bite.
const BITE: usize = 500;
/// Bites in one go, so that one chore does not starve the others.
const BITES_MAX: usize = 200;
/// How often running redrives are advanced.
const REDRIVE_TICK: Duration = Duration::from_secs(1);
/// How often deliveries enter their lanes whose time has come.
const ENTER_EVERY: Duration = Duration::from_secs(1);
/// Running redrives that go on in one tick, the oldest first; the others wait until some have ended.
const REDRIVES_MAX: usize = 1_000;
/// How long recalls are kept: much longer than any lease, after which nobody holds what they recall.
const RECALLS_KEPT: Span = Span::from_secs(3_600);
/// How often the use of keys is written down.
const USES_EVERY: Duration = Duration::from_secs(60);
/// How often it is said which lines of policies were left out.
const LINES_EVERY: Duration = Duration::from_secs(1);
/// How often the gauges that need a count are refreshed. A count costs the same with any history.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// How often it is looked whether this node is on duty.
const SAMPLE_LOOK: Duration = Duration::from_secs(5);
/// Rows of figures that are added up or removed in one bite.
const ROLLUPS_BITE: usize = 2_000;
/// To count the backlog of each subscription means to look at all of it. So one of more than this is looked at
/// in every second minute only, one of more than twice this in every third, and so on.
const SAMPLE_MAX: u64 = 1_000_000;

/// Looks how many deliveries wait.
#[derive(Default)]
struct Sampler {
    /// What was found of subscriptions last, and in how many minutes it is looked at again.
    subscriptions: Vec<(Option<TenantId>, RollupScope, u64)>,
    pause: u64,
}

impl Sampler {
    async fn sample(&mut self, of: &Maintenance) -> posthorn_store::Result<()> {
        let tenants = of.store.pending_by_tenant().await?;
        let all: u64 = tenants.iter().map(|(_, pending)| pending).sum();
        if self.pause > 0 {
            self.pause -= 1;
        } else {
            let found = of.store.pending_by_subscription().await?.into_iter();
            let scoped =
                |(tenant, id, pending)| (Some(tenant), RollupScope::Subscription(id), pending);
            self.subscriptions = found.map(scoped).collect();
            self.pause = all / SAMPLE_MAX;
        }
        let mut realms: BTreeMap<RealmName, u64> = BTreeMap::new();
        for (tenant, pending) in &tenants {
            if let Ok(realm) = of.catalog.realm_of(*tenant) {
                *realms.entry(realm).or_default() += pending;
            }
        }
        let realms = realms.into_iter();
        let realms = realms.map(|(name, pending)| (None, RollupScope::Realm(name), pending));
        let tenants = tenants.into_iter();
        let tenants = tenants.map(|(id, pending)| (Some(id), RollupScope::Tenant(id), pending));
        let subscriptions = self.subscriptions.iter().cloned();
        let server = std::iter::once((None, RollupScope::Server, all));
        let all = server.chain(realms).chain(tenants).chain(subscriptions);
        of.counting.sample(of.clock.now(), all);
        Ok(())
    }
}

pub(crate) struct Maintenance {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) options: Arc<Options>,
    pub(crate) redriver: Redriver,
    pub(crate) wakes: Wakes,
    pub(crate) log: Arc<PolicyLog>,
    pub(crate) counting: Arc<Counting>,
}

impl Maintenance {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        tokio::join!(self.do_chores(), self.keep_gauges(), self.keep_time(), self.keep_figures());
    }

    /// Beside the chores: whoever is to be delivered at a time does not wait for what takes long.
    async fn keep_time(&self) {
        let mut ticks = tokio::time::interval(ENTER_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.is_on_duty() {
                self.report(self.enter_lanes().await, "enter lanes");
            }
        }
    }

    /// Has deliveries enter their lanes whose event's time has come, and tells their owners.
    async fn enter_lanes(&self) -> posthorn_store::Result<()> {
        for _ in 0..BITES_MAX {
            let entered = self.store.enter_lanes(BITE, self.clock.now()).await?;
            if !entered.subscriptions.is_empty() {
                self.redriver.tell(None, &entered.subscriptions).await;
            }
            if !entered.more {
                break;
            }
        }
        Ok(())
    }

    /// Beside the chores: a long history that is pruned must not make gauges stand still.
    async fn keep_gauges(&self) {
        let mut counts = tokio::time::interval(COUNT_EVERY);
        counts.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            counts.tick().await;
            if self.is_on_duty() {
                self.report(self.count().await, "count");
            }
        }
    }

    /// Once in each minute: how many deliveries wait, and what was counted before.
    async fn keep_figures(&self) {
        let mut sampler = Sampler::default();
        loop {
            if self.is_on_duty() {
                self.report(sampler.sample(self).await, "sample");
                self.report(self.tend_rollups().await, "rollups");
                let now = self.clock.now();
                let next = RollupStep::Minute.floor(now).plus(RollupStep::Minute.span());
                tokio::time::sleep(next.since(now).to_duration()).await;
            } else {
                tokio::time::sleep(SAMPLE_LOOK).await;
            }
        }
    }

    async fn tend_rollups(&self) -> posthorn_store::Result<()> {
        let now = self.clock.now();
        let tend = TendRollups {
            fold_before: RollupStep::Minute.floor(now.minus(FOLD_AFTER)),
            minutes_before: now.minus(RollupStep::Minute.kept()),
            hours_before: now.minus(RollupStep::Hour.kept()),
            limit: ROLLUPS_BITE,
        };
        for _ in 0..BITES_MAX {
            if !self.store.tend_rollups(tend).await? {
                break;
            }
        }
        Ok(())
    }

    async fn do_chores(&self) {
        let mut chores = tokio::time::interval(self.options.maintenance_interval);
        chores.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut redrives = tokio::time::interval(REDRIVE_TICK);
        redrives.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut uses = tokio::time::interval(USES_EVERY);
        uses.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut lines = tokio::time::interval(LINES_EVERY);
        lines.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = lines.tick() => self.log.tidy(),
                // Every node knows only what was used on it.
                _ = uses.tick() => self.report(self.write_uses().await, "key use"),
                _ = redrives.tick() => {
                    if self.is_on_duty() {
                        self.report(self.advance_redrives().await, "redrive");
                    }
                }
                _ = chores.tick() => {
                    if self.is_on_duty() {
                        self.report(self.sweep().await, "sweep");
                        self.report(self.prune().await, "prune");
                        self.report(self.prune_sessions().await, "prune sessions");
                        self.report(self.prune_answers().await, "prune answers");
                    }
                }
            }
        }
    }

    fn is_on_duty(&self) -> bool {
        Shard::new(0).is_some_and(|first| self.wakes.holds(first))
    }

    fn report(&self, result: posthorn_store::Result<()>, chore: &'static str) {
        if let Err(e) = result {
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => chore).increment(1);
            warn!(error = %chain(&e), chore, "a maintenance task failed; it will be retried");
        }
    }

    /// Writes down which keys were used since the last time; what cannot be written is kept.
    async fn write_uses(&self) -> posthorn_store::Result<()> {
        let uses = self.catalog.uses_to_write();
        if uses.is_empty() {
            return Ok(());
        }
        let written = self.store.touch_keys(uses.clone()).await;
        if written.is_err() {
            self.catalog.uses_not_written(&uses);
        }
        written
    }

    async fn sweep(&self) -> posthorn_store::Result<()> {
        for _ in 0..BITES_MAX {
            let swept = self.store.sweep_cancelled(BITE, self.clock.now()).await?;
            if swept.cancelled > 0 {
                debug!(cancelled = swept.cancelled, "deliveries of deleted subscriptions ended");
            }
            if !swept.more {
                break;
            }
        }
        Ok(())
    }

    async fn prune(&self) -> posthorn_store::Result<()> {
        let now = self.clock.now();
        for _ in 0..BITES_MAX {
            let pruned = self
                .store
                .prune(Prune {
                    now,
                    ended_before: now.minus(self.options.event_retention),
                    dead_before: now.minus(self.options.dead_letter_retention),
                    keys_before: now.minus(self.options.idempotency_retention),
                    recalls_before: now.minus(RECALLS_KEPT),
                    audit_before: now.minus(self.options.audit_retention),
                    limit: BITE,
                })
                .await?;
            if !pruned.more {
                break;
            }
        }
        Ok(())
    }

    /// Removes sessions of pages and links whose time is over.
    async fn prune_sessions(&self) -> posthorn_store::Result<()> {
        for _ in 0..BITES_MAX {
            if self.store.prune_sessions(self.clock.now(), BITE).await? < BITE {
                break;
            }
        }
        Ok(())
    }

    /// Removes kept answers whose time is over.
    async fn prune_answers(&self) -> posthorn_store::Result<()> {
        for _ in 0..BITES_MAX {
            if self.store.prune_answers(self.clock.now(), BITE).await? < BITE {
                break;
            }
        }
        Ok(())
    }

    /// Refreshes the gauges that need a count.
    async fn count(&self) -> posthorn_store::Result<()> {
        let counts = self.store.counts(None).await?;
        ::metrics::gauge!(metrics::PENDING).set(counts.pending as f64);
        ::metrics::gauge!(metrics::DEAD_STORED).set(counts.dead as f64);
        self.watch_certificates();
        Ok(())
    }

    /// How long the first certificate of each kind still lasts, so that somebody can be woken before
    /// it ends rather than after.
    fn watch_certificates(&self) {
        let now = self.clock.now();
        for kind in CertificateKind::ALL {
            // Where there is none, nothing ends: an alert must not stay after the last one is gone.
            let end = self.catalog.next_expiry(kind).map(|end| end.as_millis());
            let left = end
                .map_or(f64::INFINITY, |end| end.saturating_sub(now.as_millis()) as f64 / 1_000.0);
            ::metrics::gauge!(metrics::CERTIFICATE_EXPIRY, "kind" => kind.as_str()).set(left);
        }
    }

    async fn advance_redrives(&self) -> posthorn_store::Result<()> {
        for redrive in self.store.running_redrives(REDRIVES_MAX).await? {
            // The others go on: one that cannot be moved now is tried again with the next tick.
            if let Err(e) = self.redriver.advance(&redrive, usize::MAX).await {
                warn!(error = %chain(&e), redrive = %redrive.id, "a redrive could not continue; \
                                                                  it will be retried");
            }
        }
        Ok(())
    }
}
