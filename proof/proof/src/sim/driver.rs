//! One run from beginning to end: set the stage, storm, days, healing, reckoning.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{Labels, TenantId, Timestamp, TopicName};
use posthorn_engine::Options;
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::Store;
use tokio::time::sleep;

use super::clock::SimClock;
use super::cluster::Cluster;
use super::dice::Dice;
use super::operators::Operator;
use super::oracle::{Invariant, Oracle};
use super::plan::Plan;
use super::publishers::{Publisher, TOPICS};
use super::run::Outcome;
use super::trace::Trace;
use super::world::{Faults, World};

/// Steps of the quiet days at most.
const DAY_STEPS: usize = 40;
/// Steps of the healing at most; what is not done by then never will be.
const HEALING_STEPS: usize = 4_000;

struct Stage {
    world: Arc<World>,
    cluster: Arc<Cluster>,
    dice: Dice,
    operator: Operator,
    publishers: Vec<Publisher>,
}

/// Runs a seed inside a paused runtime.
pub(crate) async fn drive(seed: u64, verbose: bool) -> Outcome {
    let plan = Plan::draw(seed);
    let vault = Arc::new(Vault::new(vec![VaultKey::generate()]).expect("a vault with a key"));
    let clock = SimClock::begin();
    let Options { lease, slots, profiles, .. } = &plan.options;
    let oracle = Oracle::new(seed, *lease, *slots, profiles, Arc::clone(&vault));
    let world = Arc::new(World {
        clock: clock.clone(),
        oracle: Mutex::new(oracle),
        faults: Mutex::new(Faults::NONE),
        store_dice: Mutex::new(Dice::new(seed, "store")),
        receiver_dice: Mutex::new(Dice::new(seed, "receivers")),
        trace: Mutex::new(Trace::new(verbose)),
        plan,
    });
    let model = ModelStore::new(Arc::new(clock.clone()));
    let cluster = Cluster::new(Arc::clone(&world), model, vault);
    tokio::select! {
        biased;
        () = clock.stalled() => {
            let what = "everybody is busy and the clock stands still".to_owned();
            world.oracle.lock().blame(Invariant::I20, world.now(), what);
        }
        () = act(seed, &world, &cluster) => {}
    }
    for node in cluster.running() {
        node.link.dead.cancel();
        node.engine.kill();
    }
    let oracle = world.oracle.lock();
    let mut trace = world.trace.lock();
    Outcome {
        seed,
        hash: trace.hash(),
        entries: trace.entries(),
        tally: oracle.tally,
        crashes: cluster.crashes.load(Ordering::Relaxed) as u64,
        virtual_ms: clock.elapsed() as u64,
        violations: oracle.violations.clone(),
        lines: trace.take_lines(),
    }
}

async fn act(seed: u64, world: &Arc<World>, cluster: &Arc<Cluster>) {
    let mut stage = Stage::set(seed, world, cluster).await;
    *world.faults.lock() = world.plan.faults;
    Box::pin(stage.storm()).await;
    stage.reckon().await;
    stage.days().await;
    stage.heal().await;
    stage.finish().await;
}

impl Stage {
    async fn set(seed: u64, world: &Arc<World>, cluster: &Arc<Cluster>) -> Self {
        for index in 0..world.plan.nodes {
            cluster.start(index).await;
        }
        let first = cluster.running().remove(0);
        let mut tenants = Vec::new();
        for number in 0..world.plan.tenants {
            let tenant = first.engine.create_tenant(format!("tenant {number}")).await;
            let tenant = tenant.expect("nothing breaks yet").id;
            for topic in TOPICS {
                let name = TopicName::new(topic).expect("a valid name");
                let put = first
                    .engine
                    .put_topic(tenant, name, String::new(), Vec::new(), Labels::default())
                    .await;
                put.expect("nothing breaks yet");
            }
            tenants.push(tenant);
        }
        let tenants = Arc::new(tenants);
        let mut operator = Operator {
            cluster: Arc::clone(cluster),
            tenants: Arc::clone(&tenants),
            dice: Dice::new(seed, "operator"),
            made: 0,
            redrives: Vec::new(),
            jobs: Vec::new(),
        };
        // Some of the first subscriptions use a profile of their tenant's own.
        for _ in 0..world.plan.tenants {
            operator.put_profile(&first).await;
        }
        for _ in 0..world.plan.subscriptions {
            operator.create(&first).await;
        }
        // From chance of their own: without them the world is what it was.
        let mut listening = Dice::new(seed, "listeners");
        for tenant in tenants.iter().copied().chain([TenantId::SYSTEM]) {
            if listening.chance(0.5) {
                operator.listen(&first, tenant, &mut listening).await;
            }
        }
        let publishers = (0..world.plan.publishers)
            .map(|number| Publisher {
                cluster: Arc::clone(cluster),
                tenants: Arc::clone(&tenants),
                dice: Dice::new(seed, &format!("publisher {number}")),
                name: format!("p{number}"),
                count: 0,
            })
            .collect();
        Self {
            world: Arc::clone(world),
            cluster: Arc::clone(cluster),
            dice: Dice::new(seed, "chaos"),
            operator,
            publishers,
        }
    }

    /// Everything at once.
    async fn storm(&mut self) {
        let plan = &self.world.plan;
        let until = self.world.clock.elapsed() + plan.storm as i64;
        let (events, every) = (plan.events, plan.operator_every);
        let pause = plan.storm / (events as u64 + 1);
        let publishing = futures_util::future::join_all(
            self.publishers.iter_mut().map(|publisher| publisher.run(events, pause)),
        );
        let operating = self.operator.run(until, every);
        let breaking = chaos(&self.cluster, &mut self.dice, until);
        tokio::join!(publishing, operating, breaking);
    }

    /// Days in which little happens: the clock jumps from one due time to the next.
    async fn days(&mut self) {
        let end = self.world.clock.elapsed() + (self.world.plan.days * 86_400_000) as i64;
        for _ in 0..DAY_STEPS {
            if self.world.clock.elapsed() >= end {
                break;
            }
            let most = self.dice.between(600_000, 40_000_000);
            self.skip(most).await;
            let stay = self.dice.between(1_000, 8_000);
            sleep(Duration::from_millis(stay)).await;
            match self.dice.below(12) {
                0 => {
                    let index = self.dice.below(self.world.plan.nodes as u64) as usize;
                    self.cluster.kill(index);
                    self.cluster.start(index).await;
                }
                1 | 2 => {
                    let number = self.dice.below(self.publishers.len() as u64) as usize;
                    self.publishers[number].run(2, 500).await;
                }
                _ => {}
            }
        }
        let rest = end - self.world.clock.elapsed();
        if rest > 0 {
            self.skip(rest as u64).await;
        }
        self.reckon().await;
    }

    /// Jumps ahead while nothing is due, at most so many milliseconds.
    async fn skip(&self, most: u64) {
        let (next, busy) = {
            let oracle = self.world.oracle.lock();
            (oracle.next_due(), oracle.is_busy())
        };
        let now = self.world.now();
        let free = next.map_or(most, |next| next.since(now).as_millis().min(most));
        if !busy && free > 8_000 {
            self.world.note("skip", &free);
            tokio::time::advance(Duration::from_millis(free - 4_000)).await;
            self.world.oracle.lock().disturb(self.world.now());
        }
    }

    /// Compares the store's counts with the account.
    async fn reckon(&self) {
        let counts = self.cluster.model.counts(None).await.expect("the model answers");
        self.world.oracle.lock().check_counts(self.world.now(), &counts);
    }

    /// Nothing breaks any more, and all that waited for somebody is let go.
    async fn heal(&mut self) {
        *self.world.faults.lock() = Faults::NONE;
        for index in 0..self.world.plan.nodes {
            self.cluster.cut(index, false);
            self.cluster.start(index).await;
        }
        let node = self.cluster.running().remove(0);
        let living = self.world.oracle.lock().living();
        for (tenant, id, active) in living {
            if !active && self.dice.chance(0.9) {
                self.operator.resume_one(&node, tenant, id).await;
            }
        }
        let healed = self.world.now();
        self.world.oracle.lock().disturb(healed);
        for step in 0..HEALING_STEPS {
            self.unblock(&node.engine).await;
            let now = self.world.now();
            if self.world.oracle.lock().check_progress(now, healed) {
                return;
            }
            self.skip(u64::MAX).await;
            sleep(Duration::from_millis(if step < 20 { 500 } else { 2_000 })).await;
        }
        let now = self.world.now();
        let what = "the rest does not drain".to_owned();
        self.world.oracle.lock().blame(Invariant::I20, now, what);
    }

    async fn unblock(&self, engine: &posthorn_engine::Engine) {
        let blockers = self.world.oracle.lock().blockers();
        for (tenant, id) in blockers {
            let _ = engine.cancel_delivery(tenant, id).await;
        }
    }

    async fn finish(&self) {
        sleep(Duration::from_secs(5)).await;
        self.reckon().await;
        let now: Timestamp = self.world.now();
        for node in self.cluster.running() {
            let snapshot = node.engine.inspect().await;
            self.world.oracle.lock().check_idle(now, node.link.index, &snapshot);
        }
        let model = &self.cluster.model;
        let (rows, attempts) = (model.all_deliveries(), model.all_attempts());
        self.world.oracle.lock().check_end(now, &rows, attempts);
    }
}

/// Breaks things until the time is over.
async fn chaos(cluster: &Arc<Cluster>, dice: &mut Dice, until: i64) {
    let world = &cluster.world;
    let every = world.plan.chaos_every;
    if every == u64::MAX {
        return;
    }
    loop {
        let pause = dice.between(every / 4, every * 2);
        sleep(Duration::from_millis(pause)).await;
        if world.clock.elapsed() >= until {
            break;
        }
        let index = dice.below(world.plan.nodes as u64) as usize;
        let ttl = world.plan.options.lease.as_millis() as u64;
        match dice.weighted(&[6, 3, 5, 3, 1]) {
            0 => {
                cluster.kill(index);
                let down = if dice.chance(0.5) { 0 } else { dice.between(100, ttl * 3) };
                sleep(Duration::from_millis(down)).await;
                cluster.start(index).await;
            }
            1 => {
                cluster.stop(index).await;
                let down = dice.between(0, 5_000);
                sleep(Duration::from_millis(down)).await;
                cluster.start(index).await;
            }
            2 => {
                cluster.cut(index, true);
                let away = dice.between(ttl / 4, ttl * 2);
                sleep(Duration::from_millis(away)).await;
                cluster.cut(index, false);
            }
            3 => {
                world.faults.lock().outage = true;
                world.note("outage", &true);
                let away = dice.between(500, ttl * 2);
                sleep(Duration::from_millis(away)).await;
                world.faults.lock().outage = false;
                world.oracle.lock().disturb(world.now());
            }
            _ => {
                for index in 0..world.plan.nodes {
                    cluster.kill(index);
                }
                for index in 0..world.plan.nodes {
                    cluster.start(index).await;
                }
            }
        }
    }
}
