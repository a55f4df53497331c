//! The machines: started, killed, stopped, cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_engine::{Engine, Parts};
use posthorn_sealing::vault::Vault;
use tokio::time::sleep;

use super::dice::{Dice, seed_bytes};
use super::fault_store::FaultStore;
use super::mailboxes::SimMailboxes;
use super::receivers::SimTransport;
use super::world::{Link, World};

/// A running node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) link: Arc<Link>,
    pub(crate) engine: Engine,
}

/// All machines.
pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) model: ModelStore,
    vault: Arc<Vault>,
    nodes: Mutex<Vec<Option<Node>>>,
    lives: AtomicUsize,
    pub(crate) crashes: AtomicUsize,
}

impl Cluster {
    pub(crate) fn new(world: Arc<World>, model: ModelStore, vault: Arc<Vault>) -> Arc<Self> {
        let nodes = Mutex::new(vec![None; world.plan.nodes]);
        let (lives, crashes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { world, model, vault, nodes, lives, crashes })
    }

    /// Starts a machine that is down, however long that takes.
    pub(crate) async fn start(&self, index: usize) {
        if self.nodes.lock()[index].is_some() {
            return;
        }
        loop {
            let life = self.lives.fetch_add(1, Ordering::Relaxed);
            let world = &self.world;
            let clock = world.clock.skewed(world.plan.skews[index]);
            let link = Link::new(index, life, clock.clone());
            let store = FaultStore::new(self.model.peer(), Arc::clone(world), Arc::clone(&link));
            let transport = SimTransport::new(Arc::clone(world), Arc::clone(&link));
            let started = Engine::start(Parts {
                store: Arc::new(store),
                transport: Arc::new(transport),
                push: Some(Arc::new(SimMailboxes::new(Arc::clone(world), Arc::clone(&link)))),
                vault: Arc::clone(&self.vault),
                clock: Arc::new(clock),
                seed: seed_bytes(world.plan.seed, &format!("engine {life}")),
                tracer: None,
                options: world.plan.options.clone(),
            })
            .await;
            world.note("start", &(index, life, started.is_ok()));
            match started {
                Ok(engine) => {
                    link.set_node(engine.node());
                    self.nodes.lock()[index] = Some(Node { link, engine });
                    return;
                }
                Err(_) => sleep(Duration::from_millis(700)).await,
            }
        }
    }

    fn take(&self, index: usize) -> Option<Node> {
        self.nodes.lock()[index].take()
    }

    /// Kills a machine, as `kill -9` would.
    pub(crate) fn kill(&self, index: usize) {
        let Some(node) = self.take(index) else { return };
        self.crashes.fetch_add(1, Ordering::Relaxed);
        self.world.note("kill", &(index, node.link.life));
        node.link.dead.cancel();
        node.link.set_cut(false);
        self.world.oracle.lock().died(node.link.life, self.world.now());
        node.engine.kill();
    }

    /// Stops a machine as an operator would.
    pub(crate) async fn stop(&self, index: usize) {
        let Some(node) = self.take(index) else { return };
        self.world.note("stop", &(index, node.link.life));
        let stopping = node.engine.stop();
        // A store that does not answer must not keep a process from ending.
        let _ = tokio::time::timeout(Duration::from_secs(60), stopping).await;
        node.link.dead.cancel();
        self.world.oracle.lock().died(node.link.life, self.world.now());
        node.engine.kill();
    }

    /// Cuts a machine off from store and network, or joins it again.
    pub(crate) fn cut(&self, index: usize, cut: bool) {
        let node = self.nodes.lock()[index].clone();
        if let Some(node) = node {
            self.world.note("cut", &(index, cut));
            self.world.oracle.lock().disturb(self.world.now());
            node.link.set_cut(cut);
        }
    }

    /// All that run.
    pub(crate) fn running(&self) -> Vec<Node> {
        self.nodes.lock().iter().flatten().cloned().collect()
    }

    /// One that runs.
    pub(crate) fn any(&self, dice: &mut Dice) -> Option<Node> {
        let running = self.running();
        if running.is_empty() { None } else { Some(dice.pick(&running).clone()) }
    }

    /// Asks a node for something; `None` when it died, or answered nothing for a long time.
    pub(crate) async fn ask<T>(&self, node: &Node, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = node.link.dead.cancelled() => None,
            answer = tokio::time::timeout(Duration::from_secs(300), call) => answer.ok(),
        }
    }
}
