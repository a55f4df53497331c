//! Questions about agents and their messages.

use posthorn_domain::push::KeyHash;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushHeaders, PushMessage, StoredMessage, Timestamp,
};
use posthorn_store::push::{Agent, Census, Channel, MessagesAsk, Route, RouteAsk, Router};
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};

use super::sql;
use crate::codec::{Columns, int};
use crate::error::{Corrupt, Failure};

/// An agent's number and router record, from the columns of [`sql::AGENT`].
fn router(row: &Row<'_>) -> Result<(i64, Router), Corrupt> {
    let columns = Columns::of(row, "push_agent", 0);
    let router = Router {
        node: columns.maybe_text(1)?.map(str::to_owned),
        connected_at: columns.time(2)?,
        created_at: columns.time(3)?,
        seen_at: columns.time(4)?,
    };
    Ok((columns.int(0)?, router))
}

fn channel(row: &Row<'_>) -> Result<Channel, Corrupt> {
    let columns = Columns::of(row, "push_channel", 0);
    let id = ChannelId::from_bytes(columns.array(0)?);
    Ok(Channel { id, key: columns.maybe_array(1)?.map(KeyHash) })
}

/// An agent's number and router record, by [`sql::AGENT`].
pub(super) fn find(
    statement: &mut Statement<'_>,
    agent: AgentId,
) -> Result<Option<(i64, Router)>, Failure> {
    let found = statement.query_row([agent.as_bytes()], |row| Ok(router(row))).optional()?;
    Ok(found.transpose()?)
}

/// The channels of an agent, by id, by [`sql::CHANNELS`].
pub(super) fn channels(statement: &mut Statement<'_>, no: i64) -> Result<Vec<Channel>, Failure> {
    let mut rows = statement.query([no])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(channel(row)?);
    }
    Ok(found)
}

pub(super) fn routes(conn: &Connection, asks: &[RouteAsk]) -> Result<Vec<Option<Route>>, Failure> {
    let mut agent = conn.prepare_cached(sql::AGENT)?;
    let mut named = conn.prepare_cached(sql::CHANNEL)?;
    let mut route = |ask: &RouteAsk| -> Result<Option<Route>, Failure> {
        let Some((no, router)) = find(&mut agent, ask.agent)? else { return Ok(None) };
        let key = params![no, ask.channel.as_bytes()];
        let found = named.query_row(key, |row| Ok(channel(row))).optional()?;
        Ok(Some(Route { router, channel: found.transpose()? }))
    };
    asks.iter().map(&mut route).collect()
}

pub(super) fn agents(conn: &Connection, asks: &[AgentId]) -> Result<Vec<Option<Agent>>, Failure> {
    let mut known = conn.prepare_cached(sql::AGENT)?;
    let mut own = conn.prepare_cached(sql::CHANNELS)?;
    let mut agent = |id: &AgentId| -> Result<Option<Agent>, Failure> {
        let Some((no, router)) = find(&mut known, *id)? else { return Ok(None) };
        Ok(Some(Agent { id: *id, router, channels: channels(&mut own, no)? }))
    };
    asks.iter().map(&mut agent).collect()
}

pub(super) fn messages(
    conn: &Connection,
    asks: &[MessagesAsk],
) -> Result<Vec<Vec<StoredMessage>>, Failure> {
    let mut topics = conn.prepare_cached(sql::TOPIC_MESSAGES)?;
    let mut plain = conn.prepare_cached(sql::PLAIN_MESSAGES)?;
    let mut answer = |ask: &MessagesAsk| -> Result<Vec<StoredMessage>, Failure> {
        let mut found = Vec::new();
        for (part, after) in [(&mut topics, ask.after_topics), (&mut plain, ask.after)] {
            let room = ask.limit - found.len();
            if room > 0 {
                read_on(part, ask, after, room, &mut found)?;
            }
        }
        Ok(found)
    };
    asks.iter().map(&mut answer).collect()
}

/// Reads one of the two parts of an answer.
fn read_on(
    part: &mut Statement<'_>,
    ask: &MessagesAsk,
    after: MessageSeq,
    room: usize,
    found: &mut Vec<StoredMessage>,
) -> Result<(), Failure> {
    let (now, room) = (ask.now.as_millis(), int(room as u64));
    let mut rows = part.query(params![ask.agent.as_bytes(), int(after.0), now, room])?;
    while let Some(row) = rows.next()? {
        found.push(stored(ask.agent, row)?);
    }
    Ok(())
}

/// Decodes the columns of [`sql::TOPIC_MESSAGES`] and [`sql::PLAIN_MESSAGES`].
fn stored(agent: AgentId, row: &Row<'_>) -> Result<StoredMessage, Corrupt> {
    let columns = Columns::of(row, "push_message", 0);
    let topic = columns.maybe_text(3)?.map(|text| text.parse().map_err(|e| columns.corrupt(e)));
    let headers = match columns.maybe_text(6)? {
        None => None,
        Some(encoding) => Some(PushHeaders {
            encoding: encoding.parse().map_err(|error| columns.corrupt(error))?,
            encryption: columns.maybe_text(7)?.map(Into::into),
            crypto_key: columns.maybe_text(8)?.map(Into::into),
        }),
    };
    let message = PushMessage {
        agent,
        channel: ChannelId::from_bytes(columns.array(1)?),
        id: MessageId::from_bytes(columns.array(2)?),
        topic: topic.transpose()?,
        received_at: columns.time(4)?,
        ttl: columns.number(5)?,
        headers,
        body: columns.maybe_bytes(9)?,
    };
    Ok(StoredMessage { seq: MessageSeq(columns.number(0)?), message })
}

pub(super) fn count(
    conn: &Connection,
    agents: &[AgentId],
    now: Timestamp,
    at_most: u64,
) -> Result<Vec<u64>, Failure> {
    let mut statement = conn.prepare_cached(sql::COUNT)?;
    let mut count = |agent: &AgentId| -> Result<u64, Failure> {
        let values = params![agent.as_bytes(), now.as_millis(), int(at_most)];
        let number: i64 = statement.query_row(values, |row| row.get(0))?;
        Ok(number.unsigned_abs())
    };
    agents.iter().map(&mut count).collect()
}

pub(super) fn census(conn: &Connection, at_most: u64) -> Result<Census, Failure> {
    let mut census = Census::default();
    let mut statement = conn.prepare_cached(sql::CENSUS_AGENTS)?;
    let mut rows = statement.query([int(at_most.saturating_add(1))])?;
    while let Some(row) = rows.next()? {
        let columns = Columns::of(row, "push_agent", 0);
        let number: u64 = columns.number(1)?;
        census.agents += number;
        if let Some(node) = columns.maybe_text(0)? {
            census.connected.push((node.to_owned(), number));
        }
    }
    let mut statement = conn.prepare_cached(sql::CENSUS_MESSAGES)?;
    let messages: i64 = statement.query_row([int(at_most.saturating_add(1))], |row| row.get(0))?;
    census.messages = messages.unsigned_abs();
    Ok(census.bounded(at_most))
}
