//! A whole run: start, load, faults, calm, drain, verdict.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::crash::checker;
use crate::crash::cluster::{self, Cluster, StoreKind};
use crate::crash::dice::Dice;
use crate::crash::evidence::{Evidence, Finale, Journal};
use crate::crash::faults::Fate;
use crate::crash::leaver::{LEAVERS, Leaver};
use crate::crash::plan::{Order, Plan, Subscription, TENANTS, TOPICS, Temper};
use crate::crash::publisher::{self, Publisher, Shared};
use crate::crash::receiver::Receiver;
use crate::crash::resumption::Resumption;
use crate::crash::summary::Summary;

/// How long the server may take to deliver the rest once the faults have stopped.
const DRAIN_PATIENCE: Duration = Duration::from_secs(180);
/// How long nothing may be delivered meanwhile: longer than any wait, lease or open breaker.
const STALL_PATIENCE: Duration = Duration::from_secs(25);
/// Publishers of single events for each tenant; one more publishes batches.
const SINGLES: u32 = 4;
/// The largest filling of a payload.
const FILLING: u64 = 1_200;
/// How often a subscription's creation is tried during the run.
const CREATE_TRIES: u32 = 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary under test.
    pub binary: PathBuf,
    /// The store.
    pub store: StoreKind,
    /// How many faults.
    pub cycles: u64,
    /// Which of them comes first.
    pub first: u64,
    /// For chance.
    pub seed: u64,
    /// Events a second.
    pub rate: u32,
    /// Nodes, on PostgreSQL.
    pub nodes: usize,
    /// The folder for everything that is written.
    pub folder: PathBuf,
}

/// A run under way.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) journal: Arc<Journal>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) plan: Plan,
    pub(crate) finale: Finale,
    calm: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    publishers: JoinSet<()>,
    /// Tenants that are deleted while it goes on.
    leavers: Vec<Leaver>,
    folder: PathBuf,
}

/// Says how it goes.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// Runs, and judges.
pub async fn run(options: &Options) -> anyhow::Result<Summary> {
    let began = Instant::now();
    let mut dice = Dice::part(options.seed, "faults");
    let mut stage = Stage::set(
        &cluster::Options {
            binary: options.binary.clone(),
            store: options.store,
            nodes: options.nodes,
            folder: options.folder.clone(),
            data: None,
            seed: options.seed,
        },
        Plan::new(options.seed),
    )
    .await?;
    let keys = stage.subscribe_all().await?;
    for number in 0..LEAVERS {
        let leaver = Leaver::make(&mut stage.cluster, &stage.journal, number, options.seed).await?;
        stage.leavers.push(leaver);
    }
    stage.publish(&keys, options.rate, options.seed);
    for cycle in 0..options.cycles {
        sleep(dice.millis(200..=3_000)).await;
        if cycle > 0 && cycle % options.cycles.div_ceil(3) == 0 {
            stage.subscribe_late(cycle).await?;
        }
        let nodes = stage.cluster.nodes.len();
        let fate = Fate::choose(&mut dice, options.first + cycle, nodes, options.store);
        let published = stage.shared.numbers.load(Ordering::Relaxed);
        let what = fate.describe();
        say(&format!("cycle {}/{}: {published} events; {what}", cycle + 1, options.cycles));
        // Each at its time, right before a fault; one that got no answer is asked for again.
        let leaving = (cycle as usize + 1) * LEAVERS / options.cycles.max(1) as usize;
        for leaver in stage.leavers.iter_mut().take(leaving.max(1)) {
            leaver.delete(&mut stage.cluster, &stage.journal).await;
        }
        let ends = fate.strike(&mut stage.cluster, &stage.journal).await?;
        for end in &ends {
            say(&format!("  {end}"));
        }
        stage.finale.own_ends.extend(ends);
    }
    sleep(dice.millis(200..=3_000)).await;
    let drain_seconds = stage.drain().await?;
    let mut summary = stage.finish().await?;
    summary.store = format!("{:?}", options.store).to_lowercase();
    summary.seed = options.seed;
    summary.cycles = options.cycles;
    summary.drain_seconds = drain_seconds;
    summary.seconds = began.elapsed().as_secs_f64();
    Ok(summary)
}

impl Stage {
    /// Starts the server; nothing is subscribed yet.
    pub(crate) async fn set(options: &cluster::Options, plan: Plan) -> anyhow::Result<Self> {
        let journal = Arc::new(Journal::new(&options.folder)?);
        say(&format!("starting {:?} on {}", options.store, options.binary.display()));
        let cluster = Cluster::start(options).await?;
        let shared = Arc::new(Shared::new(Arc::clone(&journal), Arc::clone(&cluster.targets)));
        Ok(Self {
            cluster,
            journal,
            shared,
            plan,
            finale: Finale::default(),
            calm: Arc::new(AtomicBool::new(false)),
            stop: watch::Sender::new(false),
            publishers: JoinSet::new(),
            leavers: Vec::new(),
            folder: options.folder.clone(),
        })
    }

    /// Makes tenants, topics and the plan's subscriptions; the publishers' API keys by tenant.
    pub(crate) async fn subscribe_all(&mut self) -> anyhow::Result<Vec<(String, String)>> {
        let topics: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        let mut keys = Vec::new();
        for tenant in TENANTS {
            let key = self.cluster.make_tenant(tenant, &topics).await?;
            keys.push((tenant.to_owned(), key));
        }
        for mut subscription in std::mem::take(&mut self.plan.subscriptions) {
            if !self.subscribe(&mut subscription).await? {
                bail!("the subscription {} was not made", subscription.name);
            }
            self.plan.subscriptions.push(subscription);
        }
        Ok(keys)
    }

    /// Starts a receiver and subscribes it; false when the server did not clearly say 201.
    async fn subscribe(&mut self, subscription: &mut Subscription) -> anyhow::Result<bool> {
        let (journal, calm) = (Arc::clone(&self.journal), Arc::clone(&self.calm));
        let seed = self.plan.seed;
        let address = Receiver::start(subscription.clone(), seed, journal, calm).await?;
        let url = format!("http://{address}/hook/{}", subscription.name);
        let mut request = subscription.request(seed, &url);
        if subscription.from_start {
            let Some(oldest) = self.cluster.oldest(&subscription.tenant).await else {
                return Ok(false);
            };
            request["start"] = serde_json::json!({"time": oldest});
        }
        subscription.asked = self.journal.now();
        let tenant = Some(subscription.tenant.as_str());
        match self.cluster.call_once(tenant, "POST", "/v1/subscriptions", &request).await {
            Ok(answer) if answer.is_success() => {
                subscription.created = Some(self.journal.now());
                Ok(true)
            }
            Ok(answer) if answer.status < 500 => {
                bail!("subscribing {}: {} {}", subscription.name, answer.status, answer.body)
            }
            _ => Ok(false),
        }
    }

    /// Two more subscriptions while the load runs. From its 201 on, the one must get everything, whichever
    /// node takes the publish. The other begins in the past: it must get everything of the run, in order, by a job
    /// that is under way when the next fault strikes.
    async fn subscribe_late(&mut self, cycle: u64) -> anyhow::Result<()> {
        self.subscribe_at(cycle, "late", Order::Key, false).await?;
        self.subscribe_at(cycle, "history", Order::Key, true).await
    }

    /// A try without an answer stays in the plan as one that may exist.
    async fn subscribe_at(
        &mut self,
        cycle: u64,
        kind: &str,
        order: Order,
        from_start: bool,
    ) -> anyhow::Result<()> {
        for attempt in 0..CREATE_TRIES {
            let name = format!("{kind}-{cycle}-{attempt}");
            let tenant = TENANTS[usize::try_from(cycle % 2).unwrap_or(0)];
            let wish = Subscription::new(tenant, &name, &["orders"], order, Temper::Good);
            let mut subscription = Subscription { from_start, ..wish };
            let done = self.subscribe(&mut subscription).await?;
            self.plan.subscriptions.push(subscription);
            if done {
                return Ok(());
            }
            sleep(Duration::from_millis(200)).await;
        }
        bail!("no subscription could be made during the run")
    }

    fn publish(&mut self, keys: &[(String, String)], rate: u32, seed: u64) {
        // Half of the events come alone, half in batches of seven on average.
        let tenants = u32::try_from(keys.len()).unwrap_or(1);
        let half = f64::from(rate.max(2)) / 2.0;
        let single = Duration::from_secs_f64(f64::from(tenants * SINGLES) / half);
        let batch = Duration::from_secs_f64(f64::from(tenants * 7) / half);
        for (tenant, api_key) in keys {
            for index in 0..=SINGLES {
                let batches = index == SINGLES;
                self.add_publisher(
                    publisher::Options {
                        name: format!("{tenant}-p{index}"),
                        tenant: tenant.clone(),
                        api_key: api_key.clone(),
                        batches,
                        pace: if batches { batch } else { single },
                        filling: FILLING,
                        mischief: true,
                    },
                    seed,
                );
            }
        }
    }

    pub(crate) fn add_publisher(&mut self, options: publisher::Options, seed: u64) {
        let publisher = Publisher::new(options, Arc::clone(&self.shared), seed);
        self.publishers.spawn(publisher.run(self.stop.subscribe()));
    }

    /// Ends the load and waits until everything is delivered; how long that took.
    pub(crate) async fn drain(&mut self) -> anyhow::Result<f64> {
        self.calm.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        while let Some(ended) = self.publishers.join_next().await {
            ended.context("a publisher failed")?;
        }
        let began = Instant::now();
        let mut said = began;
        let mut moved = (u64::MAX, began);
        loop {
            let mut pending = 0;
            for tenant in TENANTS {
                pending += u64::from(self.cluster.is_replaying(tenant).await?);
                pending += self.cluster.stats(tenant).await?.pending;
            }
            if pending == 0 {
                self.finale.drained = true;
                // What was recorded as late must not make anything go out again.
                sleep(Duration::from_millis(1_500)).await;
                return Ok(began.elapsed().as_secs_f64() - 1.5);
            }
            if pending < moved.0 {
                moved = (pending, Instant::now());
            }
            if began.elapsed() >= DRAIN_PATIENCE || moved.1.elapsed() >= STALL_PATIENCE {
                return Ok(began.elapsed().as_secs_f64());
            }
            if said.elapsed() >= Duration::from_secs(3) {
                said = Instant::now();
                say(&format!("draining: {pending} pending"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Asks the server for its account, stops it, and judges.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Summary> {
        let ends = self.cluster.revive()?;
        self.finale.own_ends.extend(ends);
        for tenant in TENANTS {
            let end = self.cluster.tenant_end(tenant).await?;
            self.finale.tenants.push(end);
        }
        for leaver in std::mem::take(&mut self.leavers) {
            let end = leaver.end(&mut self.cluster, &self.journal).await?;
            self.finale.deleted.push(end);
        }
        for node in &mut self.cluster.nodes {
            let end = node.stop().await?;
            if !end.is_some_and(|end| end.success()) {
                let how = end.map_or("it had to be killed".to_owned(), |end| end.to_string());
                self.finale.own_ends.push(format!("node {} on SIGTERM: {how}", node.index()));
            }
        }
        if self.cluster.data.exists() {
            self.finale.integrity = integrity(&self.cluster.data).await?;
        }
        self.finale.alarms = self.cluster.alarms();
        self.journal.finish(&self.folder, &self.plan, &self.finale)?;
        let evidence = Evidence::read(&self.folder)?;
        let verdict = checker::check(&evidence);
        let answers = std::mem::take(&mut *self.shared.answers.lock());
        let resumption = Resumption::of(&evidence);
        Ok(Summary { resumption, ..Summary::new(verdict, answers) })
    }
}

/// What SQLite says of each of its files in a folder; `None` when its program is not installed.
async fn integrity(folder: &Path) -> anyhow::Result<Option<String>> {
    let mut said = Vec::new();
    for entry in std::fs::read_dir(folder).context("reading the data folder")? {
        let path = entry?.path();
        let is_database =
            std::fs::read(&path).is_ok_and(|text| text.starts_with(b"SQLite format 3"));
        if !is_database {
            continue;
        }
        let mut command = Command::new("sqlite3");
        command.arg(&path).arg("PRAGMA integrity_check; PRAGMA foreign_key_check;");
        let Ok(output) = command.stdin(Stdio::null()).output().await else {
            say("sqlite3 is not installed: the integrity of the database is not checked");
            return Ok(None);
        };
        let text = [output.stdout, output.stderr].concat();
        said.push(String::from_utf8_lossy(&text).trim().to_owned());
    }
    if said.is_empty() {
        bail!("there is no database in {}", folder.display());
    }
    said.dedup();
    Ok(Some(said.join("\n")))
}
