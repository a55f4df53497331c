//! Agents and their channels.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use posthorn_domain::{AgentId, ChannelId, Timestamp};
use posthorn_store::Result;
use posthorn_store::push::{
    Agent, Bite, Channel, ClearNode, Connect, Connected, KeyHash, Register, Registered, Route,
    RouteAsk, Router,
};
use tokio_postgres::Row;

use super::{Part, hits, holding, place, rounds};
use crate::codec::{Reader, Uid, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, pipeline, query, step};
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
    raw.map(fixed).transpose()
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
                let held: Vec<Uid> = batch.iter().map(|item| item.agent.into()).collect();
                let pieces = rounds(&batch, |item| vec![item.agent]);
                let columns: Vec<(Connections<'_>, Vec<i64>)> = pieces
                    .iter()
                    .map(|piece| {
                        let items = &batch[piece.clone()];
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
                let rows = holding(client, &held, &parts).await?;
                let mut replies = Vec::with_capacity(batch.len());
                for (piece, rows) in pieces.into_iter().zip(rows) {
                    let found = placed(piece.len(), &rows, |reader| {
                        Ok((agent(reader)?, reader.get::<bool>("wins")?))
                    })?;
                    for (item, found) in batch[piece].iter().zip(found) {
                        replies.push(connected(item, found));
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
                let items = batch.iter().map(|item| (item.agent, &*item.node, item.connected_at));
                let columns = Connections::of(items);
                let params = columns.params();
                let rows = holding(client, &columns.agent, &[(sql::PUSH_CLEAR, &params)]).await?;
                let mut hit = HashSet::new();
                for row in rows.iter().flatten() {
                    let place = place(&Reader::new(row, "push_agent", "place"))?;
                    hit.extend(
                        batch.get(place).map(|item| (item.agent, &*item.node, item.connected_at)),
                    );
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
                let params: [Param<'_>; 1] = [&&*ids];
                let rows = holding(client, &ids, &[(sql::PUSH_DROP, &params)]).await?;
                let hit = rows.iter().flatten().map(|row| row.try_get::<_, Uid>("id"));
                let hit = hit.collect::<Result<HashSet<_>, _>>()?;
                Ok(hits(ids.iter().copied(), hit))
            })
        })
        .await
}

/// Channels to be registered, with the births of their agents.
#[derive(Default)]
struct Registrations<'b> {
    agent: Vec<Uid>,
    channel: Vec<Uid>,
    key: Vec<Option<&'b [u8]>>,
    at: Vec<i64>,
    born: Vec<Uid>,
    born_node: Vec<Cow<'b, str>>,
    born_connected_at: Vec<i64>,
    born_at: Vec<i64>,
}

impl<'b> Registrations<'b> {
    fn of(items: &'b [Register]) -> Self {
        let mut columns = Self::default();
        for item in items {
            columns.agent.push(item.agent.into());
            columns.channel.push(item.channel.into());
            columns.key.push(item.key.as_ref().map(|key| &key[..]));
            columns.at.push(item.at.as_millis());
            if let Some(birth) = &item.birth {
                columns.born.push(item.agent.into());
                columns.born_node.push(text(&birth.node));
                columns.born_connected_at.push(birth.connected_at.as_millis());
                columns.born_at.push(item.at.as_millis());
            }
        }
        columns
    }

    fn births(&self) -> [Param<'_>; 4] {
        [&self.born, &self.born_node, &self.born_connected_at, &self.born_at]
    }

    fn channels(&self) -> [Param<'_>; 4] {
        [&self.agent, &self.channel, &self.key, &self.at]
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
                let pieces = rounds(&batch, |item| vec![item.agent]);
                let columns: Vec<Registrations<'_>> =
                    pieces.iter().map(|piece| Registrations::of(&batch[piece.clone()])).collect();
                let births: Vec<_> = columns.iter().map(Registrations::births).collect();
                let locks: Vec<[Param<'_>; 1]> =
                    columns.iter().map(|c| -> [Param<'_>; 1] { [&c.agent] }).collect();
                let channels: Vec<_> = columns.iter().map(Registrations::channels).collect();
                // The lock comes behind the births: who was born meanwhile must be held too.
                let mut steps = Vec::new();
                let mut answers = Vec::new();
                for (index, columns) in columns.iter().enumerate() {
                    if !columns.born.is_empty() {
                        steps.push(step(client, sql::PUSH_BIRTH, &births[index]).await?);
                    }
                    steps.push(step(client, sql::PUSH_LOCK, &locks[index]).await?);
                    answers.push(steps.len());
                    steps.push(step(client, sql::PUSH_REGISTER, &channels[index]).await?);
                }
                let rows = pipeline(client, &steps).await?;
                let mut replies = Vec::with_capacity(batch.len());
                for (piece, answer) in pieces.into_iter().zip(answers) {
                    let found = placed(piece.len(), &rows[answer], |reader| {
                        Ok(match (reader.get("there")?, reader.get("again")?) {
                            (false, _) => Registered::AgentGone,
                            (true, false) => Registered::New,
                            (true, true) => Registered::Again,
                        })
                    })?;
                    replies.extend(found.into_iter().flatten());
                }
                Ok(replies)
            })
        })
        .await
}

pub(super) async fn unregister(
    session: &Session,
    batch: Vec<(AgentId, ChannelId)>,
) -> Result<Vec<bool>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let agents: Arc<[Uid]> = batch.iter().map(|(agent, _)| Uid::from(*agent)).collect();
    let channels: Arc<[Uid]> = batch.iter().map(|(_, channel)| Uid::from(*channel)).collect();
    session
        .run(UNREGISTER, move |client| {
            let (agents, channels) = (Arc::clone(&agents), Arc::clone(&channels));
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&&*agents, &&*channels];
                let rows = holding(client, &agents, &[(sql::PUSH_UNREGISTER, &params)]).await?;
                let mut hit: HashSet<(Uid, Uid)> = HashSet::new();
                for row in rows.iter().flatten() {
                    hit.insert((row.try_get("agent")?, row.try_get("id")?));
                }
                Ok(hits(agents.iter().copied().zip(channels.iter().copied()), hit))
            })
        })
        .await
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
