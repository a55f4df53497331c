//! Web Push: the contract [`PushStore`] on the same file, by the same writer and readers.
//!
//! Every write is a command like any other and shares its commit with whatever is queued, deliveries
//! included. One writer means one order: sequences of messages are commit order without further ado.

mod read;
mod sql;
mod write;

use async_trait::async_trait;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};
use posthorn_store::push::{
    AGENT_MESSAGES_MAX, Agent, Bite, Census, ClearNode, Connect, Connected, Kept, MessagesAsk,
    Register, Registered, Route, RouteAsk, Trim,
};
use posthorn_store::{PushStore, Result};

use crate::store::SqliteStore;
use crate::writer::Weight;

const fn rows(rows: usize) -> Weight {
    Weight { rows, bytes: 0 }
}

#[async_trait]
impl PushStore for SqliteStore {
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
        self.read(move |conn| read::routes(conn, &asks)).await
    }

    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
        self.read(move |conn| read::agents(conn, &asks)).await
    }

    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>> {
        self.write(rows(batch.len()), move |writer| write::connect(&writer.conn, &batch)).await
    }

    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
        self.write(rows(batch.len()), move |writer| write::clear(&writer.conn, &batch)).await
    }

    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>> {
        self.write(rows(agents.len()), move |writer| write::drop_all(&writer.conn, &agents)).await
    }

    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>> {
        self.write(rows(batch.len()), move |writer| write::register(&writer.conn, &batch)).await
    }

    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>> {
        self.write(rows(batch.len()), move |writer| write::unregister(&writer.conn, &batch)).await
    }

    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
        let bytes = batch.iter().filter_map(|message| Some(message.body.as_ref()?.len())).sum();
        let weight = Weight { rows: batch.len(), bytes };
        self.write(weight, move |writer| write::keep(&writer.conn, &batch)).await
    }

    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>> {
        self.read(move |conn| read::messages(conn, &asks)).await
    }

    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>> {
        self.read(move |conn| read::count(conn, &agents, now, at_most)).await
    }

    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
        self.write(rows(batch.len()), move |writer| write::ack(&writer.conn, &batch)).await
    }

    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>> {
        self.write(rows(batch.len()), move |writer| write::delete(&writer.conn, &batch)).await
    }

    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
        self.write(rows(batch.len()), move |writer| write::trim(&writer.conn, &batch, now)).await
    }

    async fn census(&self, at_most: u64) -> Result<Census> {
        self.read(move |conn| read::census(conn, at_most)).await
    }

    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite> {
        self.write(rows(limit), move |writer| write::expire_messages(&writer.conn, now, limit))
            .await
    }

    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite> {
        let weight = rows(limit + AGENT_MESSAGES_MAX);
        self.write(weight, move |writer| write::expire_agents(&writer.conn, before, limit)).await
    }
}
