//! A store in memory that can be told to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};
use posthorn_store::push::{
    Agent, Bite, ClearNode, Connect, Connected, Kept, MessagesAsk, PushStore, Register, Registered,
    Route, RouteAsk, Trim,
};
use posthorn_store::{Error, Result};

use crate::house::SetClock;

/// What becomes of the questions.
#[derive(Clone, Copy)]
pub(crate) enum Mood {
    Well,
    Broken,
    Mute,
    /// There is always more to remove.
    Endless,
}

pub(crate) struct Moody {
    pub(crate) store: ModelStore,
    pub(crate) mood: Mutex<Mood>,
    /// How many questions there were.
    pub(crate) asked: AtomicUsize,
}

impl Moody {
    pub(crate) fn new(mood: Mood) -> Arc<Self> {
        let store = ModelStore::new(SetClock::at(0));
        Arc::new(Self { store, mood: Mutex::new(mood), asked: AtomicUsize::new(0) })
    }

    async fn ask(&self) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mood = *self.mood.lock();
        match mood {
            Mood::Well | Mood::Endless => Ok(()),
            Mood::Broken => Err(Error::Unavailable { context: "ask", source: None }),
            Mood::Mute => std::future::pending().await,
        }
    }
}

#[async_trait]
impl PushStore for Moody {
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
        self.ask().await?;
        self.store.routes(asks).await
    }

    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
        self.ask().await?;
        self.store.agents(asks).await
    }

    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>> {
        self.ask().await?;
        self.store.connect_agents(batch).await
    }

    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
        self.ask().await?;
        self.store.clear_nodes(batch).await
    }

    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>> {
        self.ask().await?;
        self.store.drop_agents(agents).await
    }

    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>> {
        self.ask().await?;
        self.store.register_channels(batch).await
    }

    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>> {
        self.ask().await?;
        self.store.unregister_channels(batch).await
    }

    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
        self.ask().await?;
        self.store.store_messages(batch).await
    }

    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>> {
        self.ask().await?;
        self.store.messages(asks).await
    }

    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>> {
        self.ask().await?;
        self.store.count_messages(agents, now, at_most).await
    }

    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
        self.ask().await?;
        self.store.ack_messages(batch).await
    }

    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>> {
        self.ask().await?;
        self.store.delete_messages(batch).await
    }

    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
        self.ask().await?;
        self.store.trim_messages(batch, now).await
    }

    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite> {
        self.ask().await?;
        if matches!(*self.mood.lock(), Mood::Endless) {
            return Ok(Bite { removed: limit, more: true });
        }
        self.store.expire_messages(now, limit).await
    }

    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite> {
        self.ask().await?;
        if matches!(*self.mood.lock(), Mood::Endless) {
            return Ok(Bite { removed: limit, more: true });
        }
        self.store.expire_agents(before, limit).await
    }
}
