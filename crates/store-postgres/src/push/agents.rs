//! Agents and their channels.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, Timestamp};
use posthorn_store::Result;
use posthorn_store::push::{
    AGENT_MESSAGES_MAX, Agent, Bite, Channel, ClearNode, Connect, Connected, Register, Registered,
    Route, RouteAsk, Router,
};
use tokio_postgres::Row;

use super::{Part, hits, hold, ids, place, places, remove, rounds, settle};
use crate::codec::{Reader, Uid, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, batch, begin, commit, execute, query};
use crate::{metrics, sql};

const ROUTES: Operation = Operation::read("push_routes", "look up the nodes of agents");
const AGENTS: Operation = Operation::read("push_agents", "read agents");
const CONNECT: Operation = Operation::write("push_connect", "store connections");
const CLEAR: Operation = Operation::write("push_clear", "remove records of nodes");
const DROP: Operation = Operation::write("push_drop", "remove agents");
const REGISTER: Operation = Operation::write("push_register", "register channels");
const UNREGISTER: Operation = Operation::write("push_unregister", "remove channels");
const EXPIRE: Operation = Operation::write("push_expire_agents", "remove stale agents");

fn router(reader: &Reader<'_>) -> Result<Router, Corrupt> {
    Ok(Router {
        node: reader.get::<Option<&str>>("node")?.map(str::to_owned),
        connected_at: reader.time("connected_at")?,
        created_at: reader.time("created_at")?,
        seen_at: reader.time("seen_at")?,
    })
}

fn key(reader: &Reader<'_>, raw: Option<&[u8]>) -> Result<Option<KeyHash>, Corrupt> {
    let fixed = |raw: &[u8]| raw.try_into().map_err(|error| reader.corrupt("key_hash", error));
    Ok(raw.map(fixed).transpose()?.map(KeyHash))
}

fn agent(reader: &Reader<'_>) -> Result<Agent, Corrupt> {
    let ids: Vec<Uid> = reader.get("channels")?;
    let keys: Vec<Option<&[u8]>> = reader.get("keys")?;
    let channel =
        |(id, raw): (Uid, Option<&[u8]>)| Ok(Channel { id: id.into(), key: key(reader, raw)? });
    let channels = ids.into_iter().zip(keys).map(channel).collect::<Result<_, Corrupt>>()?;
    Ok(Agent { id: reader.id("id")?, router: router(reader)?, channels })
}

/// Puts what rows say into the places of their items.
fn placed<T>(
    items: usize,
    rows: &[Row],
    decode: impl Fn(&Reader<'_>) -> Result<T, Corrupt>,
) -> Outcome<Vec<Option<T>>> {
    let mut replies: Vec<Option<T>> = std::iter::repeat_with(|| None).take(items).collect();
    for row in rows {
        let reader = Reader::new(row, "push_agent", "id");
        if let Some(slot) = replies.get_mut(place(&reader)?) {
            *slot = Some(decode(&reader)?);
        }
    }
    Ok(replies)
}

pub(super) async fn routes(session: &Session, asks: Vec<RouteAsk>) -> Result<Vec<Option<Route>>> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let agents: Arc<[Uid]> = asks.iter().map(|ask| ask.agent.into()).collect();
    let channels: Arc<[Uid]> = asks.iter().map(|ask| ask.channel.into()).collect();
    session
        .run(ROUTES, move |client| {
            let (agents, channels) = (Arc::clone(&agents), Arc::clone(&channels));
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&&*agents, &&*channels];
                let rows = query(client, sql::PUSH_ROUTES, &params).await?;
                placed(agents.len(), &rows, |reader| {
                    let channel = match reader.get::<Option<Uid>>("channel")? {
                        None => None,
                        Some(id) => {
                            let key = key(reader, reader.get("key_hash")?)?;
                            Some(Channel { id: id.into(), key })
                        }
                    };
                    Ok(Route { router: router(reader)?, channel })
                })
            })
        })
        .await
}

pub(super) async fn agents(session: &Session, asks: Vec<AgentId>) -> Result<Vec<Option<Agent>>> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Arc<[Uid]> = asks.iter().map(|id| Uid::from(*id)).collect();
    session
        .run(AGENTS, move |client| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let rows = query(client, sql::PUSH_AGENTS, &[&&*ids]).await?;
                placed(ids.len(), &rows, agent)
            })
        })
        .await
}

/// The columns of connections.
struct Connections<'b> {
    agent: Vec<Uid>,
    node: Vec<Cow<'b, str>>,
    at: Vec<i64>,
}

impl<'b> Connections<'b> {
    fn of(items: impl Iterator<Item = (AgentId, &'b str, Timestamp)>) -> Self {
        let mut columns = Self { agent: Vec::new(), node: Vec::new(), at: Vec::new() };
        for (agent, node, at) in items {
            columns.agent.push(agent.into());
            columns.node.push(text(node));
            columns.at.push(at.as_millis());
        }
        columns
    }

    fn params(&self) -> [Param<'_>; 3] {
        [&self.agent, &self.node, &self.at]
    }
}

pub(super) async fn connect(session: &Session, batch: Vec<Connect>) -> Result<Vec<Connected>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    metrics::rows(CONNECT.name, batch.len());
    let batch = Arc::new(batch);
    session
        .run(CONNECT, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let agents: Vec<Uid> = batch.iter().map(|item| item.agent.into()).collect();
                let places = places(&agents, &hold(client, &agents).await?);
                let wanted: Vec<&Connect> = places.iter().map(|at| &batch[*at]).collect();
                let pieces = rounds(&wanted, |item| vec![item.agent]);
                let columns: Vec<(Connections<'_>, Vec<i64>)> = pieces
                    .iter()
                    .map(|piece| {
                        let items = &wanted[piece.clone()];
                        let made = items.iter().map(|item| (item.agent, &*item.node, item.at));
                        let seen = items.iter().map(|item| item.seen.as_millis()).collect();
                        (Connections::of(made), seen)
                    })
                    .collect();
                let params: Vec<[Param<'_>; 4]> = columns
                    .iter()
                    .map(|(columns, seen)| -> [Param<'_>; 4] {
                        let [agent, node, at] = columns.params();
                        [agent, node, at, seen]
                    })
                    .collect();
                let parts: Vec<Part<'_>> =
                    params.iter().map(|params| (sql::PUSH_CONNECT, &params[..])).collect();
                let rows = settle(client, &parts).await?;
                let mut replies = vec![Connected::Unknown; batch.len()];
                for (piece, rows) in pieces.into_iter().zip(rows) {
                    let found = placed(piece.len(), &rows, |reader| {
                        Ok((agent(reader)?, reader.get::<bool>("wins")?))
                    })?;
                    for (at, found) in places[piece].iter().zip(found) {
                        replies[*at] = connected(&batch[*at], found);
                    }
                }
                Ok(replies)
            })
        })
        .await
}

/// What became of a connection, from the agent as it was before.
fn connected(item: &Connect, found: Option<(Agent, bool)>) -> Connected {
    match found {
        None => Connected::Unknown,
        Some((agent, false)) => Connected::Superseded { router: agent.router },
        Some((mut agent, true)) => {
            let before = agent.router.node.replace(text(&item.node).into_owned());
            agent.router.connected_at = item.at;
            agent.router.seen_at = agent.router.seen_at.max(item.seen);
            Connected::Here { agent, before }
        }
    }
}

pub(super) async fn clear(session: &Session, batch: Vec<ClearNode>) -> Result<Vec<bool>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Arc::new(batch);
    session
        .run(CLEAR, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let agents: Vec<Uid> = batch.iter().map(|item| item.agent.into()).collect();
                let places = places(&agents, &hold(client, &agents).await?);
                let items = places.iter().filter_map(|at| batch.get(*at));
                let columns = Connections::of(items.map(|i| (i.agent, &*i.node, i.connected_at)));
                let params = columns.params();
                let rows = settle(client, &[(sql::PUSH_CLEAR, &params)]).await?;
                let mut hit = HashSet::new();
                for row in rows.iter().flatten() {
                    let place = place(&Reader::new(row, "push_agent", "place"))?;
                    let item = places.get(place).and_then(|at| batch.get(*at));
                    hit.extend(item.map(|item| (item.agent, &*item.node, item.connected_at)));
                }
                let asked = batch.iter().map(|item| (item.agent, &*item.node, item.connected_at));
                Ok(hits(asked, hit))
            })
        })
        .await
}

pub(super) async fn drop_all(session: &Session, agents: Vec<AgentId>) -> Result<Vec<bool>> {
    if agents.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Arc<[Uid]> = agents.iter().map(|id| Uid::from(*id)).collect();
    session
        .run(DROP, move |client| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let held: Vec<Uid> = hold(client, &ids).await?.into_iter().collect();
                let params: [Param<'_>; 1] = [&held];
                let rows = settle(client, &[(sql::PUSH_DROP, &params)]).await?;
                let hit = rows.iter().flatten().map(|row| row.try_get::<_, Uid>("id"));
                let hit = hit.collect::<Result<HashSet<_>, _>>()?;
                Ok(hits(ids.iter().copied(), hit))
            })
        })
        .await
}

/// Agents that are made with their first channel.
#[derive(Default)]
struct Births<'b> {
    agent: Vec<Uid>,
    node: Vec<Cow<'b, str>>,
    connected_at: Vec<i64>,
    at: Vec<i64>,
}

impl<'b> Births<'b> {
    /// Of each agent the first that is said.
    fn of(items: &'b [Register]) -> Self {
        let mut columns = Self::default();
        let mut known = HashSet::new();
        for item in items {
            let Some(birth) = &item.birth else { continue };
            if !known.insert(item.agent) {
                continue;
            }
            columns.agent.push(item.agent.into());
            columns.node.push(text(&birth.node));
            columns.connected_at.push(birth.connected_at.as_millis());
            columns.at.push(item.at.as_millis());
        }
        columns
    }

    fn params(&self) -> [Param<'_>; 4] {
        [&self.agent, &self.node, &self.connected_at, &self.at]
    }
}

pub(super) async fn register(session: &Session, batch: Vec<Register>) -> Result<Vec<Registered>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    metrics::rows(REGISTER.name, batch.len());
    let batch = Arc::new(batch);
    session
        .run(REGISTER, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let places = bear(client, &batch).await?;
                let wanted: Vec<&Register> = places.iter().map(|at| &batch[*at]).collect();
                let pieces = rounds(&wanted, |item| vec![item.agent]);
                let columns: Vec<Channels<'_>> =
                    pieces.iter().map(|piece| Channels::of(&wanted[piece.clone()])).collect();
                let params: Vec<_> = columns.iter().map(Channels::params).collect();
                let parts: Vec<Part<'_>> =
                    params.iter().map(|params| (sql::PUSH_REGISTER, &params[..])).collect();
                let rows = settle(client, &parts).await?;
                let mut replies = vec![Registered::AgentGone; batch.len()];
                for (piece, rows) in pieces.into_iter().zip(&rows) {
                    let mut again: HashMap<Uid, bool> = HashMap::new();
                    for row in rows {
                        again.insert(row.try_get("id")?, row.try_get("again")?);
                    }
                    for at in &places[piece] {
                        replies[*at] = match again.get(&batch[*at].agent.into()) {
                            None => Registered::AgentGone,
                            Some(false) => Registered::New,
                            Some(true) => Registered::Again,
                        };
                    }
                }
                Ok(replies)
            })
        })
        .await
}

/// Begins a transaction in which the agents of these items are born, where that is wanted, and held.
/// Returns the places of those items that find their agent: not those before its birth.
///
/// Births come before the lock, so that also one that somebody else made meanwhile is held before it
/// gets a channel. Nobody waits for those who are born here but others who want to bear them, and
/// these hold nothing yet; so nobody waits in a circle. One that was there and is gone when the lock
/// is had was dropped in between. To bear it now would be out of turn: everything begins anew.
async fn bear(client: &Object, items: &[Register]) -> Outcome<Vec<usize>> {
    let births = Births::of(items);
    let agents: Vec<Uid> = items.iter().map(|item| item.agent.into()).collect();
    begin(client).await?;
    loop {
        let born = if births.agent.is_empty() {
            HashSet::new()
        } else {
            ids(&query(client, sql::PUSH_BIRTH, &births.params()).await?)?
        };
        let held = ids(&query(client, sql::PUSH_LOCK, &[&agents]).await?)?;
        if !births.agent.iter().all(|agent| held.contains(agent)) {
            batch(client, "rollback; begin").await?;
            continue;
        }
        let mut unborn = born;
        let mut places = Vec::with_capacity(items.len());
        for (place, (item, agent)) in items.iter().zip(&agents).enumerate() {
            if item.birth.is_some() {
                unborn.remove(agent);
            }
            if held.contains(agent) && !unborn.contains(agent) {
                places.push(place);
            }
        }
        return Ok(places);
    }
}

/// The columns of channels.
struct Channels<'b> {
    agent: Vec<Uid>,
    channel: Vec<Uid>,
    key: Vec<Option<&'b [u8]>>,
    at: Vec<i64>,
}

impl<'b> Channels<'b> {
    fn of(items: &[&'b Register]) -> Self {
        Self {
            agent: items.iter().map(|item| item.agent.into()).collect(),
            channel: items.iter().map(|item| item.channel.into()).collect(),
            key: items.iter().map(|item| item.key.as_ref().map(|key| &key.0[..])).collect(),
            at: items.iter().map(|item| item.at.as_millis()).collect(),
        }
    }

    fn params(&self) -> [Param<'_>; 4] {
        [&self.agent, &self.channel, &self.key, &self.at]
    }
}

pub(super) async fn unregister(
    session: &Session,
    batch: Vec<(AgentId, ChannelId)>,
) -> Result<Vec<bool>> {
    let batch = batch.into_iter().map(|(agent, channel)| (agent.into(), channel.into()));
    remove::<Uid>(session, UNREGISTER, sql::PUSH_UNREGISTER, "id", batch.collect()).await
}

pub(super) async fn expire(session: &Session, before: Timestamp, bite: usize) -> Result<Bite> {
    session
        .run(EXPIRE, move |client| {
            Box::pin(async move {
                begin(client).await?;
                let params: [Param<'_>; 2] = [&before.as_millis(), &limit(bite)];
                let rows = query(client, sql::PUSH_STALE, &params).await?;
                let stale = rows.iter().map(|row| row.try_get::<_, Uid>("id"));
                let stale = stale.collect::<Result<Vec<_>, _>>()?;
                let mut emptied: Vec<Uid> = Vec::new();
                if !stale.is_empty() {
                    let params: [Param<'_>; 2] = [&stale, &limit(AGENT_MESSAGES_MAX)];
                    execute(client, sql::PUSH_DROP_MESSAGES, &params).await?;
                    let rows = query(client, sql::PUSH_EMPTIED, &[&stale]).await?;
                    emptied.extend(ids(&rows)?);
                }
                if !emptied.is_empty() {
                    query(client, sql::PUSH_DROP, &[&emptied]).await?;
                }
                commit(client).await?;
                let more = emptied.len() < stale.len() || stale.len() == bite;
                Ok(Bite { removed: emptied.len(), more })
            })
        })
        .await
}
