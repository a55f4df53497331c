//! Web Push: agents, channels and messages for several nodes.
//!
//! # Theory of operation
//! The row of an agent is its lock. A write is two round trips: the first takes hold of all agents of
//! the batch that exist, in order of id (`push_lock.sql`); the second judges and changes what belongs
//! to those, and commits. They are two because a statement sees what was committed when it began, so
//! that those behind the lock see everything the former holders did, and because an agent that is made
//! in between is not held and must count as absent. Items that depend on earlier items of the same
//! batch go into a statement of their own behind those ([`rounds`]), which is rare.
//!
//! Expiry takes what nobody holds and waits for nobody, so it is in no circle of waiting.

mod agents;
mod messages;

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::Object;
use futures_util::future::{join, join_all};
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushMessage, StoredMessage, Timestamp,
};
use posthorn_store::push::{
    Agent, Bite, Census, ClearNode, Connect, Connected, Kept, MessagesAsk, Register, Registered,
    Route, RouteAsk, Trim,
};
use posthorn_store::{PushStore, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use crate::codec::{Reader, Uid};
use crate::failure::{Failure, Outcome};
use crate::session::{Operation, Param, Session};
use crate::{PostgresStore, sql};

/// Items of one statement. Some statements search an array of them for each of them.
const PIECE_MAX: usize = 512;

/// A statement with its parameters.
type Part<'a> = (&'static str, &'a [Param<'a>]);

/// Begins a transaction and takes hold of those of these agents that exist.
async fn hold(client: &Object, agents: &[Uid]) -> Outcome<HashSet<Uid>> {
    let statement = client.prepare_cached(sql::PUSH_LOCK).await?;
    let params: [Param<'_>; 1] = [&agents];
    // Requests are sent in the order in which the futures are first polled, which is this one.
    let (began, rows) =
        join(client.batch_execute("begin"), client.query(&statement, &params)).await;
    began?;
    ids(&rows?)
}

/// The agents that the lock returned.
fn ids(rows: &[Row]) -> Outcome<HashSet<Uid>> {
    let ids = rows.iter().map(|row| row.try_get::<_, Uid>("id"));
    Ok(ids.collect::<Result<_, _>>()?)
}

/// The places of those items of a batch whose agents are held.
fn places(agents: &[Uid], held: &HashSet<Uid>) -> Vec<usize> {
    (0..agents.len()).filter(|place| held.contains(&agents[*place])).collect()
}

/// Runs the statements of a transaction that has begun, and commits. Returns the rows of each part.
async fn settle(client: &Object, parts: &[Part<'_>]) -> Outcome<Vec<Vec<Row>>> {
    let mut statements = Vec::with_capacity(parts.len());
    for (statement, params) in parts {
        statements.push((client.prepare_cached(statement).await?, *params));
    }
    let queries = statements.iter().map(|(statement, params)| client.query(statement, params));
    let (rows, committed) = join(join_all(queries), client.batch_execute("commit")).await;
    let rows = rows.into_iter().collect::<Result<_, _>>().map_err(Failure::Committing)?;
    committed.map_err(Failure::Committing)?;
    Ok(rows)
}

/// Cuts a batch so that no two items of one piece have a key in common, and that no piece is longer
/// than [`PIECE_MAX`].
fn rounds<'b, T, K: Hash + Eq>(
    items: &'b [T],
    keys: impl Fn(&'b T) -> Vec<K>,
) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut taken = HashSet::new();
    let mut begin = 0;
    for (index, item) in items.iter().enumerate() {
        let own = keys(item);
        if index - begin == PIECE_MAX || own.iter().any(|key| taken.contains(key)) {
            pieces.push(begin..index);
            begin = index;
            taken.clear();
        }
        taken.extend(own);
    }
    if begin < items.len() {
        pieces.push(begin..items.len());
    }
    pieces
}

/// Which of these were hit: each hit counts for the first who asked.
fn hits<K: Hash + Eq>(asked: impl Iterator<Item = K>, mut hit: HashSet<K>) -> Vec<bool> {
    asked.map(|key| hit.remove(&key)).collect()
}

/// Removes what has these keys, each of an agent and one more column, and tells which were there. An
/// agent that is not held has nothing that could be removed.
async fn remove<K>(
    session: &Session,
    operation: Operation,
    statement: &'static str,
    column: &'static str,
    batch: Vec<(Uid, K)>,
) -> Result<Vec<bool>>
where
    K: ToSql + for<'a> FromSql<'a> + Copy + Hash + Eq + Send + Sync + 'static,
{
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Arc::new(batch);
    session
        .run(operation, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let agents: Vec<Uid> = batch.iter().map(|(agent, _)| *agent).collect();
                let held = hold(client, &agents).await?;
                let mine = batch.iter().filter(|(agent, _)| held.contains(agent)).copied();
                let (agents, keys): (Vec<Uid>, Vec<K>) = mine.unzip();
                let params: [Param<'_>; 2] = [&agents, &keys];
                let rows = settle(client, &[(statement, &params)]).await?;
                let mut hit: HashSet<(Uid, K)> = HashSet::new();
                for row in rows.iter().flatten() {
                    hit.insert((row.try_get("agent")?, row.try_get(column)?));
                }
                Ok(hits(batch.iter().copied(), hit))
            })
        })
        .await
}

/// The place of a row's item in its batch.
fn place(reader: &Reader<'_>) -> Outcome<usize> {
    let place: usize = reader.small("place")?;
    Ok(place.checked_sub(1).ok_or_else(|| reader.corrupt("place", "there is no such item"))?)
}

#[async_trait]
impl PushStore for PostgresStore {
    async fn routes(&self, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
        agents::routes(&self.session, asks).await
    }

    async fn agents(&self, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
        agents::agents(&self.session, asks).await
    }

    async fn connect_agents(&self, batch: Vec<Connect>) -> Result<Vec<Connected>> {
        agents::connect(&self.session, batch).await
    }

    async fn clear_nodes(&self, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
        agents::clear(&self.session, batch).await
    }

    async fn drop_agents(&self, agents: Vec<AgentId>) -> Result<Vec<bool>> {
        agents::drop_all(&self.session, agents).await
    }

    async fn register_channels(&self, batch: Vec<Register>) -> Result<Vec<Registered>> {
        agents::register(&self.session, batch).await
    }

    async fn unregister_channels(&self, batch: Vec<(AgentId, ChannelId)>) -> Result<Vec<bool>> {
        agents::unregister(&self.session, batch).await
    }

    async fn store_messages(&self, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
        messages::store(&self.session, batch).await
    }

    async fn messages(&self, asks: Vec<MessagesAsk>) -> Result<Vec<Vec<StoredMessage>>> {
        messages::read(&self.session, asks).await
    }

    async fn count_messages(
        &self,
        agents: Vec<AgentId>,
        now: Timestamp,
        at_most: u64,
    ) -> Result<Vec<u64>> {
        messages::count(&self.session, agents, now, at_most).await
    }

    async fn ack_messages(&self, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
        messages::ack(&self.session, batch).await
    }

    async fn delete_messages(&self, batch: Vec<(AgentId, MessageId)>) -> Result<Vec<bool>> {
        messages::delete(&self.session, batch).await
    }

    async fn trim_messages(&self, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
        messages::trim(&self.session, batch, now).await
    }

    async fn census(&self, at_most: u64) -> Result<Census> {
        messages::census(&self.session, at_most).await
    }

    async fn expire_messages(&self, now: Timestamp, limit: usize) -> Result<Bite> {
        messages::expire(&self.session, now, limit).await
    }

    async fn expire_agents(&self, before: Timestamp, limit: usize) -> Result<Bite> {
        agents::expire(&self.session, before, limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_where_a_key_comes_back() {
        let cut = |items: &[u32]| rounds(items, |item| vec![*item]);
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(&[1, 2, 3]).len(), 1);
        assert_eq!(cut(&[1, 2, 1, 3, 2, 3]), [0..2, 2..5, 5..6]);
        let pairs = rounds(&[(1, 2), (3, 4), (4, 5)], |(a, b)| vec![*a, *b]);
        assert_eq!(pairs, [0..2, 2..3]);
        let many: Vec<u32> = (0..1_000).collect();
        assert_eq!(cut(&many), [0..512, 512..1_000]);
    }

    #[test]
    fn a_hit_counts_once() {
        let hit = HashSet::from([2, 3]);
        assert_eq!(hits([1, 2, 2, 3].into_iter(), hit), [false, true, false, true]);
    }
}
