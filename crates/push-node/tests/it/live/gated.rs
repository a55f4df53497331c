//! Gates that a test can close, so that a race has the order the test wants; and a store with one
//! before each of its verbs.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};
use posthorn_store::push::{
    Agent, Bite, Census, ClearNode, Connect, Connected, Kept, MessagesAsk, PushStore, Register,
    Registered, Route, RouteAsk, Trim,
};
use posthorn_store::{Error, Result};
use posthorn_testkit::clock::StillClock;
use posthorn_testkit::wait::PATIENCE;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::live::house::store;

#[derive(Clone, Copy, Default)]
struct Gate {
    closed: bool,
    broken: bool,
    /// How many came since it was last closed or broken.
    arrived: usize,
}

/// Gates by their names. All are open until they are closed.
pub(crate) struct Gates<K>(Mutex<HashMap<K, watch::Sender<Gate>>>);

impl<K> Default for Gates<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Copy + Eq + Hash> Gates<K> {
    fn gate(&self, name: K) -> watch::Sender<Gate> {
        self.0.lock().entry(name).or_insert_with(|| watch::channel(Gate::default()).0).clone()
    }

    fn set(&self, name: K, closed: bool, broken: bool) {
        self.gate(name).send_modify(|gate| *gate = Gate { closed, broken, arrived: 0 });
    }

    /// Whoever comes from now on has to wait.
    pub(crate) fn close(&self, name: K) {
        self.set(name, true, false);
    }

    /// Whoever waits or comes goes through.
    pub(crate) fn open(&self, name: K) {
        self.set(name, false, false);
    }

    /// Whoever waits or comes is sent back with a failure.
    pub(crate) fn break_down(&self, name: K) {
        self.set(name, false, true);
    }

    /// Waits until so many came since the gate was closed or broken.
    pub(crate) async fn arrived(&self, name: K, many: usize) {
        let mut gate = self.gate(name).subscribe();
        let come = timeout(PATIENCE, gate.wait_for(|gate| gate.arrived >= many)).await;
        come.expect("somebody came in time").expect("a gate");
    }

    /// Goes through when the gate is open. Says whether what is behind it works.
    pub(crate) async fn pass(&self, name: K) -> bool {
        let gate = self.gate(name);
        let mut through = gate.subscribe();
        gate.send_modify(|gate| gate.arrived += 1);
        let broken = through.wait_for(|gate| !gate.closed).await.expect("a gate").broken;
        !broken
    }
}

/// The verbs of the store that have a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Routes,
    Agents,
    Connect,
    Clear,
    Drop,
    Register,
    Unregister,
    Store,
    Read,
    /// Read, and not answered yet.
    ReadAnswer,
    Count,
    Ack,
    Delete,
    Trim,
    Expire,
}

/// What becomes of all questions, behind their gates.
#[derive(Clone, Copy)]
pub(crate) enum Mood {
    Well,
    Broken,
    Mute,
    /// There is always more to remove.
    Endless,
}

/// The model store behind gates.
pub(crate) struct Gated {
    pub(crate) store: Arc<ModelStore>,
    pub(crate) gates: Gates<Verb>,
    pub(crate) mood: Mutex<Mood>,
    /// How many questions there were.
    pub(crate) asked: AtomicUsize,
}

impl Gated {
    pub(crate) fn new() -> Arc<Self> {
        Self::on(store(), Mood::Well)
    }

    /// In this mood, and with a clock that stands.
    pub(crate) fn in_mood(mood: Mood) -> Arc<Self> {
        Self::on(Arc::new(ModelStore::new(StillClock::at(0))), mood)
    }

    fn on(store: Arc<ModelStore>, mood: Mood) -> Arc<Self> {
        let (gates, mood) = (Gates::default(), Mutex::new(mood));
        Arc::new(Self { store, gates, mood, asked: AtomicUsize::new(0) })
    }

    pub(crate) fn close(&self, verb: Verb) {
        self.gates.close(verb);
    }

    pub(crate) fn open(&self, verb: Verb) {
        self.gates.open(verb);
    }

    pub(crate) async fn arrived(&self, verb: Verb, many: usize) {
        self.gates.arrived(verb, many).await;
    }

    /// Where the record says that an agent is.
    pub(crate) async fn node_of(&self, agent: AgentId) -> Option<String> {
        let found = self.store.agents(vec![agent]).await.expect("a store");
        found[0].as_ref().expect("an agent").router.node.clone()
    }

    /// The texts that are stored for an agent, in the order of the store.
    pub(crate) async fn texts(&self, agent: AgentId) -> Vec<String> {
        let start = MessageSeq::START;
        let now = Timestamp::from_millis(0);
        let ask = MessagesAsk { agent, after_topics: start, after: start, now, limit: usize::MAX };
        let found = self.store.messages(vec![ask]).await.expect("a store").remove(0);
        let text = |found: StoredMessage| found.message.body.unwrap_or_default().to_vec();
        found.into_iter().map(|m| String::from_utf8(text(m)).expect("text")).collect()
    }

    /// Waits until exactly these texts are stored for an agent.
    pub(crate) async fn holds(&self, agent: AgentId, texts: &[&str]) {
        let held = async {
            while self.texts(agent).await != texts {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, held).await.expect("stored in time");
    }

    async fn pass(&self, verb: Verb) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (works, mood) = (self.gates.pass(verb).await, *self.mood.lock());
        match mood {
            Mood::Well | Mood::Endless if works => Ok(()),
            Mood::Mute => std::future::pending().await,
            _ => Err(Error::Unavailable { context: "behind a broken gate", source: None }),
        }
    }

    /// A bite of what is over, of which there may be no end.
    async fn bite(&self, limit: usize, bite: impl Future<Output = Result<Bite>>) -> Result<Bite> {
        self.pass(Verb::Expire).await?;
        if matches!(*self.mood.lock(), Mood::Endless) {
            return Ok(Bite { removed: limit, more: true });
        }
        bite.await
    }
}

#[async_trait]
impl PushStore for Gated {
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
        self.pass(Verb::Routes).await?;
        self.store.routes(asks).await
    }

    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
        self.pass(Verb::Agents).await?;
        self.store.agents(asks).await
    }

    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>> {
        self.pass(Verb::Connect).await?;
        self.store.connect_agents(batch).await
    }

    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
        self.pass(Verb::Clear).await?;
        self.store.clear_nodes(batch).await
    }

    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>> {
        self.pass(Verb::Drop).await?;
        self.store.drop_agents(agents).await
    }

    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>> {
        self.pass(Verb::Register).await?;
        self.store.register_channels(batch).await
    }

    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>> {
        self.pass(Verb::Unregister).await?;
        self.store.unregister_channels(batch).await
    }

    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
        self.pass(Verb::Store).await?;
        self.store.store_messages(batch).await
    }

    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>> {
        self.pass(Verb::Read).await?;
        let read = self.store.messages(asks).await;
        self.pass(Verb::ReadAnswer).await?;
        read
    }

    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>> {
        self.pass(Verb::Count).await?;
        self.store.count_messages(agents, now, at_most).await
    }

    async fn census(&self, at_most: u64) -> Result<Census> {
        self.store.census(at_most).await
    }

    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
        self.pass(Verb::Ack).await?;
        self.store.ack_messages(batch).await
    }

    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>> {
        self.pass(Verb::Delete).await?;
        self.store.delete_messages(batch).await
    }

    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
        self.pass(Verb::Trim).await?;
        self.store.trim_messages(batch, now).await
    }

    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite> {
        self.bite(limit, self.store.expire_messages(now, limit)).await
    }

    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite> {
        self.bite(limit, self.store.expire_agents(before, limit)).await
    }
}
