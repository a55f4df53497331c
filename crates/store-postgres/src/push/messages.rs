//! Messages of agents.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushEncoding, PushHeaders, PushMessage, PushTopic,
    StoredMessage, Timestamp,
};
use posthorn_store::Result;
use posthorn_store::push::{Bite, Census, Kept, MessagesAsk, Trim};
use tokio_postgres::Row;

use super::{Part, hold, place, places, remove, rounds, settle};
use crate::codec::{Reader, Uid, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{metrics, sql};

const STORE: Operation = Operation::write("push_store", "store messages");
const READ: Operation = Operation::read("push_messages", "read messages");
const COUNT: Operation = Operation::read("push_count", "count messages");
const CENSUS: Operation = Operation::read("push_census", "count agents and messages");
const ACK: Operation = Operation::write("push_ack", "remove acknowledged messages");
const DELETE: Operation = Operation::write("push_delete", "remove messages");
const TRIM: Operation = Operation::write("push_trim", "remove the oldest messages");
const EXPIRE: Operation = Operation::write("push_expire_messages", "remove expired messages");

/// A sequence as SQL wants it. None ever gets that far.
fn seq(seq: MessageSeq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

/// What two messages of one statement must not have in common.
#[derive(PartialEq, Eq, Hash)]
enum Key<'b> {
    Id(AgentId, MessageId),
    Topic(AgentId, ChannelId, &'b PushTopic),
}

fn keys(message: &PushMessage) -> Vec<Key<'_>> {
    let topic = message.topic.as_ref();
    let topic = topic.map(|topic| Key::Topic(message.agent, message.channel, topic));
    [Key::Id(message.agent, message.id)].into_iter().chain(topic).collect()
}

/// The columns of a batch.
#[derive(Default)]
struct Columns<'b> {
    agent: Vec<Uid>,
    channel: Vec<Uid>,
    id: Vec<Uid>,
    topic: Vec<Option<&'b str>>,
    received_at: Vec<i64>,
    ttl: Vec<i64>,
    expires_at: Vec<i64>,
    encoding: Vec<Option<&'static str>>,
    encryption: Vec<Option<Cow<'b, str>>>,
    crypto_key: Vec<Option<Cow<'b, str>>>,
    body: Vec<Option<&'b [u8]>>,
}

impl<'b> Columns<'b> {
    fn of(batch: &[&'b PushMessage]) -> Self {
        let mut columns = Self::default();
        for message in batch {
            let headers = message.headers.as_ref();
            columns.agent.push(message.agent.into());
            columns.channel.push(message.channel.into());
            columns.id.push(message.id.into());
            columns.topic.push(message.topic.as_ref().map(PushTopic::as_str));
            columns.received_at.push(message.received_at.as_millis());
            columns.ttl.push(message.ttl.into());
            columns.expires_at.push(message.expires_at().as_millis());
            columns.encoding.push(headers.map(|headers| headers.encoding.as_str()));
            let encryption = headers.and_then(|headers| headers.encryption.as_deref());
            columns.encryption.push(encryption.map(text));
            let crypto_key = headers.and_then(|headers| headers.crypto_key.as_deref());
            columns.crypto_key.push(crypto_key.map(text));
            columns.body.push(message.body.as_deref());
        }
        columns
    }

    fn params(&self) -> [Param<'_>; 11] {
        [
            &self.agent,
            &self.channel,
            &self.id,
            &self.topic,
            &self.received_at,
            &self.ttl,
            &self.expires_at,
            &self.encoding,
            &self.encryption,
            &self.crypto_key,
            &self.body,
        ]
    }
}

pub(super) async fn store(session: &Session, batch: Vec<PushMessage>) -> Result<Vec<Kept>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    metrics::rows(STORE.name, batch.len());
    let batch = Arc::new(batch);
    session
        .run(STORE, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let agents: Vec<Uid> = batch.iter().map(|message| message.agent.into()).collect();
                let places = places(&agents, &hold(client, &agents).await?);
                let wanted: Vec<&PushMessage> = places.iter().map(|at| &batch[*at]).collect();
                let pieces = rounds(&wanted, |message| keys(message));
                let columns: Vec<Columns<'_>> =
                    pieces.iter().map(|piece| Columns::of(&wanted[piece.clone()])).collect();
                let params: Vec<_> = columns.iter().map(Columns::params).collect();
                let parts: Vec<Part<'_>> =
                    params.iter().map(|params| (sql::PUSH_STORE, &params[..])).collect();
                let rows = settle(client, &parts).await?;
                let mut replies = vec![Kept::AgentGone; batch.len()];
                for (piece, rows) in pieces.into_iter().zip(&rows) {
                    verdicts(&mut replies, &places[piece], rows)?;
                }
                Ok(replies)
            })
        })
        .await
}

/// Puts verdicts about the messages at these places into the replies.
fn verdicts(replies: &mut [Kept], places: &[usize], rows: &[Row]) -> Outcome<()> {
    for row in rows {
        let reader = Reader::new(row, "push_message", "place");
        let verdict: i32 = reader.get("verdict")?;
        let kept = match verdict {
            0 => Kept::Stored(MessageSeq(reader.number("seq")?)),
            1 => Kept::ChannelGone,
            2 => Kept::Again(MessageSeq(reader.number("seq")?)),
            3 => Kept::Outdated,
            other => {
                let problem = format!("{other} is not a verdict");
                return Err(reader.corrupt("verdict", problem).into());
            }
        };
        let item = places.get(place(&reader)?);
        if let Some(reply) = item.and_then(|item| replies.get_mut(*item)) {
            *reply = kept;
        }
    }
    Ok(())
}

pub(super) async fn read(
    session: &Session,
    asks: Vec<MessagesAsk>,
) -> Result<Vec<Vec<StoredMessage>>> {
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    let asks = Arc::new(asks);
    session
        .run(READ, move |client| {
            let asks = Arc::clone(&asks);
            Box::pin(async move {
                let agents: Vec<Uid> = asks.iter().map(|ask| ask.agent.into()).collect();
                let topics: Vec<i64> = asks.iter().map(|ask| seq(ask.after_topics)).collect();
                let afters: Vec<i64> = asks.iter().map(|ask| seq(ask.after)).collect();
                let nows: Vec<i64> = asks.iter().map(|ask| ask.now.as_millis()).collect();
                let limits: Vec<i64> = asks.iter().map(|ask| limit(ask.limit)).collect();
                let params: [Param<'_>; 5] = [&agents, &topics, &afters, &nows, &limits];
                let rows = query(client, sql::PUSH_MESSAGES, &params).await?;
                let mut replies: Vec<Vec<StoredMessage>> = vec![Vec::new(); asks.len()];
                for row in &rows {
                    let reader = Reader::new(row, "push_message", "id");
                    if let Some(reply) = replies.get_mut(place(&reader)?) {
                        reply.push(stored(&reader)?);
                    }
                }
                Ok(replies)
            })
        })
        .await
}

fn stored(reader: &Reader<'_>) -> Result<StoredMessage, Corrupt> {
    let topic = match reader.get::<Option<&str>>("topic")? {
        None => None,
        Some(_) => Some(reader.name("topic", str::parse::<PushTopic>)?),
    };
    let words = |column| Ok(reader.get::<Option<&str>>(column)?.map(Into::into));
    let headers = match reader.get::<Option<&str>>("encoding")? {
        None => None,
        Some(_) => Some(PushHeaders {
            encoding: reader.name("encoding", str::parse::<PushEncoding>)?,
            encryption: words("encryption")?,
            crypto_key: words("crypto_key")?,
        }),
    };
    let message = PushMessage {
        agent: reader.id("agent")?,
        channel: reader.id("channel")?,
        id: reader.id("id")?,
        topic,
        ttl: reader.number("ttl")?,
        received_at: reader.time("received_at")?,
        headers,
        body: reader.get::<Option<&[u8]>>("body")?.map(Bytes::copy_from_slice),
    };
    Ok(StoredMessage { seq: MessageSeq(reader.number("seq")?), message })
}

pub(super) async fn count(
    session: &Session,
    agents: Vec<AgentId>,
    now: Timestamp,
    at_most: u64,
) -> Result<Vec<u64>> {
    if agents.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Arc<[Uid]> = agents.iter().map(|id| Uid::from(*id)).collect();
    session
        .run(COUNT, move |client| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
                let params: [Param<'_>; 3] = [&&*ids, &now.as_millis(), &at_most];
                let rows = query(client, sql::PUSH_COUNT, &params).await?;
                let number = |row| Ok(Reader::new(row, "push_message", "number").number("number")?);
                rows.iter().map(number).collect()
            })
        })
        .await
}

pub(super) async fn census(session: &Session, at_most: u64) -> Result<Census> {
    session
        .run(CENSUS, move |client| {
            Box::pin(async move {
                let look = i64::try_from(at_most.saturating_add(1)).unwrap_or(i64::MAX);
                let mut census = Census::default();
                for row in &query(client, sql::PUSH_CENSUS, &[&look]).await? {
                    let reader = Reader::new(row, "push_agent", "node");
                    let number: u64 = reader.number("number")?;
                    census.agents += number;
                    if let Some(node) = reader.get::<Option<String>>("node")? {
                        census.connected.push((node, number));
                    }
                    if let Some(messages) = reader.get::<Option<i64>>("messages")? {
                        census.messages = messages.unsigned_abs();
                    }
                }
                census.connected.sort();
                Ok(census.bounded(at_most))
            })
        })
        .await
}

pub(super) async fn ack(session: &Session, batch: Vec<(AgentId, MessageSeq)>) -> Result<Vec<bool>> {
    metrics::rows(ACK.name, batch.len());
    let batch = batch.into_iter().map(|(agent, number)| (agent.into(), seq(number)));
    remove(session, ACK, sql::PUSH_ACK, "seq", batch.collect()).await
}

pub(super) async fn delete(
    session: &Session,
    batch: Vec<(AgentId, MessageId)>,
) -> Result<Vec<bool>> {
    let batch = batch.into_iter().map(|(agent, id)| (agent.into(), id.into()));
    remove::<Uid>(session, DELETE, sql::PUSH_DELETE, "id", batch.collect()).await
}

pub(super) async fn trim(session: &Session, batch: Vec<Trim>, now: Timestamp) -> Result<Vec<u64>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Arc::new(batch);
    session
        .run(TRIM, move |client| {
            let batch = Arc::clone(&batch);
            Box::pin(async move {
                let now = now.as_millis();
                let agents: Vec<Uid> = batch.iter().map(|item| item.agent.into()).collect();
                let keeps: Vec<i64> = batch.iter().map(|item| limit(item.keep)).collect();
                let places = places(&agents, &hold(client, &agents).await?);
                let wanted: Vec<(Uid, i64)> =
                    places.iter().map(|at| (agents[*at], keeps[*at])).collect();
                let pieces = rounds(&wanted, |(agent, _)| vec![*agent]);
                let columns: Vec<(Vec<Uid>, Vec<i64>)> = pieces
                    .iter()
                    .map(|piece| wanted[piece.clone()].iter().copied().unzip())
                    .collect();
                let params: Vec<[Param<'_>; 3]> = columns
                    .iter()
                    .map(|(agents, keeps)| -> [Param<'_>; 3] { [agents, keeps, &now] })
                    .collect();
                let parts: Vec<Part<'_>> =
                    params.iter().map(|params| (sql::PUSH_TRIM, &params[..])).collect();
                let rows = settle(client, &parts).await?;
                let mut replies = vec![0; batch.len()];
                for (piece, rows) in pieces.into_iter().zip(&rows) {
                    let own = &places[piece];
                    for row in rows {
                        let reader = Reader::new(row, "push_message", "place");
                        let item = own.get(place(&reader)?);
                        if let Some(reply) = item.and_then(|item| replies.get_mut(*item)) {
                            *reply = reader.number("removed")?;
                        }
                    }
                }
                Ok(replies)
            })
        })
        .await
}

pub(super) async fn expire(session: &Session, now: Timestamp, bite: usize) -> Result<Bite> {
    session
        .run(EXPIRE, move |client| {
            Box::pin(async move {
                begin(client).await?;
                let params: [Param<'_>; 2] = [&now.as_millis(), &limit(bite)];
                let removed = execute(client, sql::PUSH_EXPIRE_MESSAGES, &params).await?;
                commit(client).await?;
                let removed = usize::try_from(removed).unwrap_or(usize::MAX);
                Ok(Bite { removed, more: removed == bite })
            })
        })
        .await
}
