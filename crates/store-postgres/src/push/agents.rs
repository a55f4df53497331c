//! Agents and their channels.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, Timestamp};
use posthorn_store::Result;
use posthorn_store::push::{
    Agent, Bite, Channel, ClearNode, Connect, Connected, Register, Registered, Route, RouteAsk,
    Router,
};
use tokio_postgres::Row;

use super::{Part, hits, hold, ids, place, places, remove, rounds, settle};
use crate::codec::{Reader, Uid, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{metrics, sql};

const ROUTES: Operation = Operation::read("push_routes", "find the way to agents");
const AGENTS: Operation = Operation::read("push_agents", "read agents");
const CONNECT: Operation = Operation::write("push_connect", "write down connections");
const CLEAR: Operation = Operation::write("push_clear", "take nodes off the record");
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
    fn of(items: impl Iterator<Item = &'b Register>) -> Self {
        let mut columns = Self::default();
        for item in items {
            let Some(birth) = &item.birth else { continue };
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
                begin(client).await?;
                let mut replies = Vec::with_capacity(batch.len());
                for piece in rounds(&batch, |item| vec![item.agent]) {
                    replies.extend(register_piece(client, &batch[piece]).await?);
                }
                commit(client).await?;
                Ok(replies)
            })
        })
        .await
}

/// Items of different agents. Agents are born first and held then: also one that somebody else made
/// meanwhile is held before it gets a channel. One that was there and is gone when the lock is had was
/// dropped in between, and is born after all.
async fn register_piece(client: &Object, items: &[Register]) -> Outcome<Vec<Registered>> {
    let mut held: HashSet<Uid> = HashSet::new();
    loop {
        let births = Births::of(items.iter().filter(|item| !held.contains(&item.agent.into())));
        if !births.agent.is_empty() {
            execute(client, sql::PUSH_BIRTH, &births.params()).await?;
        }
        let agents: Vec<Uid> = items.iter().map(|item| item.agent.into()).collect();
        held.extend(ids(&query(client, sql::PUSH_LOCK, &[&agents]).await?)?);
        if births.agent.iter().all(|agent| held.contains(agent)) {
            break;
        }
    }
    let mine: Vec<&Register> =
        items.iter().filter(|item| held.contains(&item.agent.into())).collect();
    let agents: Vec<Uid> = mine.iter().map(|item| item.agent.into()).collect();
    let channels: Vec<Uid> = mine.iter().map(|item| item.channel.into()).collect();
    let keys: Vec<Option<&[u8]>> =
        mine.iter().map(|item| item.key.as_ref().map(|key| &key.0[..])).collect();
    let times: Vec<i64> = mine.iter().map(|item| item.at.as_millis()).collect();
    let params: [Param<'_>; 4] = [&agents, &channels, &keys, &times];
    let mut again: HashMap<Uid, bool> = HashMap::new();
    for row in &query(client, sql::PUSH_REGISTER, &params).await? {
        again.insert(row.try_get("id")?, row.try_get("again")?);
    }
    let reply = |item: &Register| match again.get(&item.agent.into()) {
        None => Registered::AgentGone,
        Some(false) => Registered::New,
        Some(true) => Registered::Again,
    };
    Ok(items.iter().map(reply).collect())
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
                if !stale.is_empty() {
                    query(client, sql::PUSH_DROP, &[&stale]).await?;
                }
                commit(client).await?;
                Ok(Bite { removed: stale.len(), more: stale.len() == bite })
            })
        })
        .await
}
