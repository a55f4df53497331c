//! The handle on a running engine, and how its services are wired together.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use posthorn_domain::{CatalogVersion, Clock, Event, NodeId, TenantId, Timestamp};
use posthorn_sealing::vault::Vault;
use posthorn_store::Store;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::admission::{Admission, counts};
use crate::attempt::Context;
use crate::audit::{Acting, LineIds};
use crate::catalog::{Catalog, SubscriptionView};
use crate::chance::Chance;
use crate::destination::push::PushDelivery;
use crate::error::{Error, Result, chain};
use crate::failure_log::FailureNames;
use crate::hold::{HeldTransport, Hold};
use crate::intake::{self, Intake, Publish, Published};
use crate::job_rounds::JobRounds;
use crate::jobs::Jobs;
use crate::maintenance::Maintenance;
use crate::matching::Matcher;
use crate::membership::{self, Membership};
use crate::nodes::KnownNodes;
use crate::options::Options;
use crate::outcomes::{OutcomeStream, Outcomes};
use crate::policy_log::PolicyLog;
use crate::quotas::Keeper;
use crate::recorder;
use crate::redriver::Redriver;
use crate::rollups::Counting;
use crate::scheduler::{self, Input, LeaseTerm, Scheduler, Snapshot};
use crate::seldom::Seldom;
use crate::sessions::ComingSessions;
use crate::tail::{self, Follower, Hints};
use crate::tokens::Tokens;
use crate::told::Teller;
use crate::trace::Tracer;
use crate::transport::Transport;
use crate::trials::{Trial, Trials};
use crate::wakes::Wakes;
use crate::watch::{Watch, ensure_system};

/// Inputs that may wait for the scheduler; when it is full, those who send wait.
const SCHEDULER_QUEUE: usize = 1_024;
/// The pause after the store could not say who has seen a recall.
const RECALL_PAUSE: Duration = Duration::from_millis(200);
/// How long a node that leaves waits for a sign of life that is under way.
const LAST_BEAT: Duration = Duration::from_secs(2);

/// What an engine is made of.
pub struct Parts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The way out.
    pub transport: Arc<dyn Transport>,
    /// The mailboxes of agents, where there are any.
    pub push: Option<Arc<dyn PushDelivery>>,
    /// What opens secrets.
    pub vault: Arc<Vault>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The seed of all chance.
    pub seed: [u8; 32],
    /// Who records traces, if anybody does.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Knobs.
    pub options: Options,
}

/// Looks at an event before it is taken in, whichever way it came, and may write it as the dialect of
/// its topic writes events.
pub type PublishCheck = Arc<dyn Fn(&Engine, Publish) -> Result<Publish> + Send + Sync>;

/// How the engine is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Working.
    Running,
    /// Finishing what is under way.
    Stopping,
    /// The store failed for good; the process must exit, a restart recovers.
    Failed(String),
}

/// A running engine. Clones share it; dropping the last one stops it at once, as a crash would.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    /// In whose name it changes things.
    pub(crate) by: Acting,
}

pub(crate) struct Inner {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) chance: Arc<Chance>,
    pub(crate) line_ids: LineIds,
    pub(crate) vault: Arc<Vault>,
    pub(crate) around: Arc<Context>,
    pub(crate) options: Arc<Options>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) wakes: Wakes,
    pub(crate) redriver: Redriver,
    pub(crate) jobs: Jobs,
    admission: Arc<Admission>,
    pub(crate) matcher: Arc<Matcher>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) keeper: Keeper,
    /// Sessions of pages on their way into the store.
    pub(crate) coming_sessions: ComingSessions,
    trials: Trials,
    pub(crate) hold: Hold,
    /// Held from the look at who is told a secret to the commit: of a subscription that takes a profile
    /// and a profile that changes, one sees the other.
    pub(crate) exposure_lock: tokio::sync::RwLock<()>,
    outcomes: Outcomes,
    /// Says that something was committed here.
    pub(crate) hints: Arc<Hints>,
    /// Nodes that fell silent.
    /// Where listeners join.
    pub(crate) tails: mpsc::Sender<tail::Join>,
    /// Who reads what it missed of the log.
    pub(crate) catch_ups: Arc<tail::CatchUps>,
    /// What happened here, for pictures.
    counting: Arc<Counting>,
    /// By tenant; hardly any tenant has one.
    checks: RwLock<Vec<(TenantId, PublishCheck)>>,
    intake: Mutex<Option<intake::Handle>>,
    health: watch::Sender<Health>,
    known: KnownNodes,
    services: Mutex<JoinSet<()>>,
    /// Says that this node gives no signs of life any more; closed once that is so.
    leaving: watch::Sender<bool>,
}

impl Engine {
    /// Loads the catalog and starts all services.
    pub fn start(parts: Parts) -> BoxFuture<'static, Result<Engine>> {
        Box::pin(async { Ok(Self::begin(parts).await?.0) })
    }

    /// The same, with all outcomes from the very first on: also those of work that was left to do.
    pub fn start_followed(parts: Parts) -> BoxFuture<'static, Result<(Engine, OutcomeStream)>> {
        Box::pin(Self::begin(parts))
    }

    /// Only called where its type is hidden: else every crate that starts an engine would be made with all of it once more.
    async fn begin(parts: Parts) -> Result<(Engine, OutcomeStream)> {
        let Parts { store, transport, push, vault, clock, seed, tracer, options } = parts;
        let options = Arc::new(options);
        let chance = Arc::new(Chance::new(seed));
        let node = chance.node_id(clock.now());
        let catalog =
            Arc::new(Catalog::new(&options.profiles, options.proxies.clone(), Arc::clone(&vault)));
        catalog.apply(store.catalog_since(catalog.version()).await?);
        let line_ids = LineIds::new(seed);
        // Nobody runs yet who would have to know what changed.
        ensure_system(&*store, &catalog, line_ids.next(clock.now()), None).await;
        let quotas = Arc::new(options.quotas.clone());
        let keeper = Keeper::new(Arc::clone(&quotas), Arc::clone(&catalog));
        keeper.warn();
        let matcher = Arc::new(Matcher::new(Arc::clone(&catalog), Arc::clone(&quotas)));

        let (scheduler, inputs) = mpsc::channel(SCHEDULER_QUEUE);
        let (publishes, queue) = mpsc::channel(intake::QUEUE);
        let (records, record_queue) = mpsc::unbounded_channel();
        let (answers, answer_queue) = mpsc::unbounded_channel();
        let (effects, effect_queue) = mpsc::unbounded_channel();
        let (failed, failures) = mpsc::unbounded_channel();
        let (leaving, leaves) = watch::channel(false);
        let (health, _) = watch::channel(Health::Running);
        let admission = Arc::new(Admission::new(options.admission.clone()));
        let outcomes = Outcomes::default();
        let known = Arc::clone(&catalog);
        // What operators are told is no realm's, so its figures are none's either.
        let realm_of = move |tenant| match tenant {
            TenantId::SYSTEM => None,
            tenant => known.realm_of(tenant).ok(),
        };
        let known = Arc::clone(&catalog);
        let is_gone = move |tenant| {
            let known = known.tenant_or_tombstone(tenant);
            known.is_some_and(|(tenant, removed)| removed || tenant.deletion.is_some())
        };
        let counting = Arc::new(Counting::new(node, realm_of).without(is_gone));
        let hints = Arc::new(Hints::default());
        let (tails, joins) = mpsc::channel(tail::JOINS);
        let followed = outcomes.follow();
        let term = LeaseTerm::default();
        let wakes = Wakes::default();
        let log = Arc::new(PolicyLog::new(options.policy_log.clone()));
        let hold = Hold::new(options.hold);
        let transport = Arc::new(HeldTransport { inner: transport, hold: hold.clone() });
        let around = Arc::new(Context {
            hold: hold.clone(),
            transport,
            push,
            push_options: options.push.clone(),
            clock: Arc::clone(&clock),
            catalog: Arc::clone(&catalog),
            term: term.clone(),
            tokens: Tokens::default(),
            origin: options.webhook_origin.clone(),
            log: Arc::clone(&log),
            tracer: tracer.clone(),
        });
        let intake_handle = intake::Handle::new(
            publishes,
            Arc::clone(&clock),
            Arc::clone(&chance),
            (options.payload_max, options.event_retention),
            Arc::clone(&admission),
            Arc::clone(&matcher),
            tracer,
        );
        let teller = Arc::new(Teller {
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            matcher: Arc::clone(&matcher),
            chance: Arc::clone(&chance),
            clock: Arc::clone(&clock),
            admission: Arc::clone(&admission),
            scheduler: scheduler.clone(),
            wakes: wakes.clone(),
            counting: Arc::clone(&counting),
        });
        let redriver = Redriver {
            teller: Arc::clone(&teller),
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            catalog: Arc::clone(&catalog),
            scheduler: scheduler.clone(),
            wakes: wakes.clone(),
        };
        let jobs = Jobs {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            catalog: Arc::clone(&catalog),
            chance: Arc::clone(&chance),
            quotas: Arc::clone(&quotas),
            matcher: Arc::clone(&matcher),
            redriver: redriver.clone(),
            teller: Arc::clone(&teller),
        };
        let inner = Arc::new(Inner {
            node,
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            clock: Arc::clone(&clock),
            chance: Arc::clone(&chance),
            line_ids,
            vault,
            around: Arc::clone(&around),
            options: Arc::clone(&options),
            scheduler: scheduler.clone(),
            wakes: wakes.clone(),
            redriver: redriver.clone(),
            jobs: jobs.clone(),
            admission: Arc::clone(&admission),
            matcher: Arc::clone(&matcher),
            teller: Arc::clone(&teller),
            keeper,
            coming_sessions: ComingSessions::default(),
            hold,
            trials: Trials::new(options.admission.tests_per_minute),
            exposure_lock: tokio::sync::RwLock::new(()),
            outcomes: outcomes.clone(),
            hints: Arc::clone(&hints),
            tails,
            catch_ups: Arc::default(),
            counting: Arc::clone(&counting),
            checks: RwLock::default(),
            intake: Mutex::new(Some(intake_handle)),
            health,
            known: KnownNodes::new(Arc::clone(&clock)),
            services: Mutex::new(JoinSet::new()),
            leaving,
        });
        let engine = Engine { inner, by: Acting::SERVER };

        let mut services = JoinSet::new();
        let run_scheduler = Scheduler::new(scheduler::Parts {
            node,
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            clock: Arc::clone(&clock),
            chance: Arc::clone(&chance),
            around,
            term: term.clone(),
            options: Arc::clone(&options),
            records,
            effects,
            admission: Arc::clone(&admission),
            outcomes,
            teller: Arc::clone(&teller),
            counting: Arc::clone(&counting),
            hints: Arc::clone(&hints),
        });
        services.spawn(run_scheduler.run(inputs, answer_queue));
        let pipeline = options.record_pipeline;
        let recording = Arc::clone(&store);
        let planning = Arc::clone(&teller);
        services.spawn(recorder::run(
            move |batch, counted| {
                let store = Arc::clone(&recording);
                async move { store.record_with(batch, counted).await }
            },
            move |stale| {
                let teller = Arc::clone(&planning);
                async move { teller.replan_records(stale).await }
            },
            pipeline,
            (Arc::clone(&counting), Arc::clone(&clock)),
            record_queue,
            answers,
            failed.clone(),
        ));
        let run_intake = Intake {
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            matcher,
            chance,
            options: Arc::clone(&options),
            scheduler: scheduler.clone(),
            wakes: wakes.clone(),
            failed: failed.clone(),
            admission: Arc::clone(&admission),
            unstored: Seldom::default(),
            clock: Arc::clone(&clock),
            counting: Arc::clone(&counting),
            hints: Arc::clone(&hints),
        };
        services.spawn(run_intake.run(queue));
        services.spawn(counts::run(admission, Arc::clone(&store)));
        let known = engine.inner.known.clone();
        services.spawn(Follower { store: Arc::clone(&store), hints, joins }.run());
        let run_membership = Membership {
            node,
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            options: Arc::clone(&options),
            scheduler: scheduler.clone(),
            term,
            wakes: wakes.clone(),
            known: known.clone(),
            leaving: leaves,
            failed,
        };
        services.spawn(run_membership.run());
        let run_watch = Watch {
            node,
            store: Arc::clone(&store),
            catalog: Arc::clone(&catalog),
            clock: Arc::clone(&clock),
            admission: Arc::clone(&engine.inner.admission),
            wakes: wakes.clone(),
            known,
            teller,
        };
        services.spawn(run_watch.run());
        let run_jobs = JobRounds {
            store: Arc::clone(&store),
            jobs,
            admission: Arc::clone(&engine.inner.admission),
            wakes: wakes.clone(),
        };
        services.spawn(run_jobs.run());
        let run_maintenance =
            Maintenance { store, catalog, clock, options, redriver, wakes, log, counting };
        services.spawn(run_maintenance.run());
        services.spawn(engine.downgrade().follow_effects(effect_queue));
        services.spawn(engine.downgrade().follow_failures(failures));
        *engine.inner.services.lock() = services;
        info!(%node, "the engine is running");
        Ok((engine, followed))
    }

    fn downgrade(&self) -> Weak {
        Weak(Arc::downgrade(&self.inner))
    }

    /// The catalog in memory.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// The store, for questions.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Who may publish right now.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.inner.admission
    }

    /// Begins a request outside of any delivery, if the tenant may make one more.
    pub(crate) fn trial(&self, tenant: TenantId) -> Result<Trial> {
        self.inner.trials.begin(tenant, self.inner.admission.nanos())
    }

    /// Deliveries as they end on this node, from now on. Bounded and lossy: for figures, not for truth.
    pub fn outcomes(&self) -> OutcomeStream {
        self.inner.outcomes.follow()
    }

    /// The present moment, by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// This process's name among the nodes.
    pub fn node(&self) -> NodeId {
        self.inner.node
    }

    /// What is known of all nodes.
    pub(crate) fn known_nodes(&self) -> &KnownNodes {
        &self.inner.known
    }

    /// Its knobs, as it was started with them.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The largest payload of an event.
    pub fn payload_bytes(&self) -> usize {
        self.inner.options.payload_max
    }

    /// One uniform number, for those who make up ids of their own.
    pub fn dice(&self) -> u64 {
        self.inner.chance.dice()
    }

    /// How it is doing, now and from now on.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.inner.health.subscribe()
    }

    /// Publishes one event. `Ok` means committed with all its deliveries.
    pub async fn publish(&self, tenant: TenantId, publish: Publish) -> Result<Published> {
        let mut answers = self.publish_batch(tenant, vec![publish]).await?;
        answers.pop().unwrap_or(Err(Error::Busy("it is stopping")))
    }

    /// Lets a dialect look at every event of its tenant from now on.
    pub fn check_publishes(&self, tenant: TenantId, check: PublishCheck) {
        let mut all = self.inner.checks.write();
        all.retain(|(known, _)| *known != tenant);
        all.push((tenant, check));
    }

    /// What the log calls failures of a tenant from now on.
    pub fn name_failures(&self, tenant: TenantId, names: FailureNames) {
        self.inner.outcomes.failures.name(tenant, names);
    }

    /// Publishes several events; each answer stands for itself.
    pub async fn publish_batch(
        &self,
        tenant: TenantId,
        batch: Vec<Publish>,
    ) -> Result<Vec<Result<Published>>> {
        let check = {
            let all = self.inner.checks.read();
            all.iter().find(|(known, _)| *known == tenant).map(|(_, check)| Arc::clone(check))
        };
        let Some(check) = check else { return self.publish_unchecked(tenant, batch).await };
        let (mut fine, mut answers) = (Vec::with_capacity(batch.len()), Vec::new());
        for publish in batch {
            match check(self, publish) {
                Ok(publish) => {
                    fine.push(publish);
                    answers.push(None);
                }
                Err(e) => answers.push(Some(Err(e))),
            }
        }
        if fine.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        let mut published = self.publish_unchecked(tenant, fine).await?.into_iter();
        let gone = || Err(Error::Busy("it is stopping"));
        let answers = answers.into_iter();
        Ok(answers.map(|answer| answer.or_else(|| published.next()).unwrap_or_else(gone)).collect())
    }

    /// The same for a dialect that looked at its events already, and for those that were taken in before.
    pub async fn publish_unchecked(
        &self,
        tenant: TenantId,
        batch: Vec<Publish>,
    ) -> Result<Vec<Result<Published>>> {
        let handle = self.inner.intake.lock().clone();
        let handle = handle.ok_or(Error::Busy("it is stopping"))?;
        handle.publish(tenant, batch).await
    }

    /// Which subscriptions would want an event that is only being thought about. It is matched on the
    /// spot, so its payload must be small.
    pub fn matches(&self, event: &Event) -> Result<Vec<Arc<SubscriptionView>>> {
        let found = self.inner.matcher.here(event)?;
        let view = |found: &crate::matching::Match| self.catalog().view(found.subscription);
        Ok(found.iter().filter_map(view).collect())
    }

    /// What is in memory right now.
    pub async fn inspect(&self) -> Snapshot {
        let (answer, snapshot) = oneshot::channel();
        drop(self.inner.scheduler.send(Input::Inspect(answer)).await);
        snapshot.await.unwrap_or_default()
    }

    /// Stops: takes nothing more in, finishes or hands back what is under way, gives up its shards.
    /// Returns within about the drain time of the options.
    pub async fn stop(&self) {
        self.inner.health.send_if_modified(|health| match health {
            Health::Running => {
                *health = Health::Stopping;
                true
            }
            _ => false,
        });
        *self.inner.intake.lock() = None;
        let (done, quiet) = oneshot::channel();
        drop(self.inner.scheduler.send(Input::Drain(done)).await);
        match tokio::time::timeout(self.inner.options.drain_timeout, quiet).await {
            Ok(_) => info!("all attempts have ended"),
            Err(_) => warn!("some attempts did not end in time; they will be repeated"),
        }
        self.write_counted().await;
        // Its shards are others' from here on: what has not been sent yet stays unsent. A sign of life after the farewell
        // would take shards again for a node that is gone.
        self.inner.around.term.lost();
        self.inner.leaving.send_replace(true);
        if tokio::time::timeout(LAST_BEAT, self.inner.leaving.closed()).await.is_err() {
            warn!("the store did not answer a last sign of life in time");
        }
        if let Err(e) = self.inner.store.depart(self.inner.node).await {
            warn!(error = %chain(&e), "the node could not release its leases; they will expire");
        }
        self.kill();
    }

    /// Writes what was counted and not written yet.
    async fn write_counted(&self) {
        let inner = &self.inner;
        while let Some(counted) = inner.counting.take(inner.clock.now(), Duration::ZERO) {
            if let Err(e) = inner.store.record_with(Vec::new(), Some(counted)).await {
                warn!(error = %chain(&e), "the last figures could not be written");
                return;
            }
        }
    }

    /// Stops at once, as a crash would: nothing is finished, nothing is given back.
    pub fn kill(&self) {
        self.inner.intake.lock().take();
        self.inner.services.lock().abort_all();
    }

    /// Brings this node's catalog up to date.
    pub async fn refresh_catalog(&self) -> Result<()> {
        let inner = &self.inner;
        let delta = inner.store.catalog_since(inner.catalog.version()).await?;
        scheduler::tell(&inner.scheduler, inner.catalog.apply(delta)).await;
        Ok(())
    }

    /// Waits for a change of the catalog, and then until it is known here and, before it returns, everywhere.
    pub(crate) async fn change_with(
        &self,
        changing: impl Future<Output = posthorn_store::Result<Option<CatalogVersion>>>,
    ) -> Result<()> {
        let version = match changing.await {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(()),
            // Somebody else was faster; whoever asks next must find here what the store went by.
            Err(refused @ posthorn_store::Error::Refused(_)) => {
                self.refresh_catalog().await?;
                return Err(refused.into());
            }
            Err(e) => return Err(e.into()),
        };
        self.make_known(version).await.map_err(after_a_commit)
    }

    /// Waits until a change that is stored is known here and everywhere.
    async fn make_known(&self, version: CatalogVersion) -> Result<()> {
        let inner = &self.inner;
        self.refresh_catalog().await?;
        if let Err(e) = inner.store.notify(&[]).await {
            warn!(error = %chain(&e), "other nodes could not be notified of a change; they will \
                                       see it when they poll");
        }
        if crate::plant::active("no-settle") {
            return Ok(());
        }
        let ttl = inner.options.lease;
        membership::settle_catalog(&*inner.store, inner.node, &inner.catalog, ttl, version).await?;
        Ok(())
    }

    /// Waits until no node sends anything from a copy that was recalled with this version: each has said
    /// so, or its lease has run out. What was done stays done, so trouble with the store only makes it
    /// take as long as a lease.
    pub(crate) async fn recalled(&self, version: Option<CatalogVersion>) {
        let inner = &self.inner;
        let Some(version) = version else { return };
        if crate::plant::active("no-recall") {
            return;
        }
        let deadline = Instant::now() + inner.options.lease;
        let mut told = false;
        while Instant::now() < deadline {
            let settled = async {
                self.refresh_catalog().await?;
                if !told {
                    inner.store.notify(&[]).await?;
                    told = true;
                }
                let ttl = inner.options.lease;
                membership::settle_catalog(&*inner.store, inner.node, &inner.catalog, ttl, version)
                    .await?;
                Ok::<(), Error>(())
            };
            match tokio::time::timeout_at(deadline, settled).await {
                Ok(Ok(())) | Err(_) => return,
                Ok(Err(e)) => {
                    warn!(error = %chain(&e), "other nodes could not be notified of a manual \
                                               change; they will see it when they poll");
                    tokio::time::sleep(RECALL_PAUSE).await;
                }
            }
        }
    }
}

/// What was done stays done: whatever fails behind it, nobody may say that nothing was.
fn after_a_commit(e: Error) -> Error {
    match e {
        Error::Store(cause) => {
            let context = "make a change known that is stored";
            Error::Store(posthorn_store::Error::unknown(context, cause))
        }
        other => other,
    }
}

/// A handle that does not keep the engine alive.
struct Weak(std::sync::Weak<Inner>);

impl Weak {
    fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(|inner| Engine { inner, by: Acting::SERVER })
    }

    async fn follow_effects(self, mut effects: mpsc::UnboundedReceiver<scheduler::Effect>) {
        while let Some(effect) = effects.recv().await {
            let Some(engine) = self.upgrade() else { return };
            if let Err(e) = engine.apply_effect(effect).await {
                warn!(error = %chain(&e), subscription = %effect.subscription,
                    "a subscription could not be disabled or deleted; the next delivery will try \
                     again");
            }
        }
    }

    async fn follow_failures(self, mut failures: mpsc::UnboundedReceiver<String>) {
        while let Some(reason) = failures.recv().await {
            let Some(engine) = self.upgrade() else { return };
            engine.inner.intake.lock().take();
            engine.inner.health.send_replace(Health::Failed(reason));
        }
    }
}
