//! What the writer does for Web Push: each function is one command, inside a transaction that others
//! share. Items of a batch are taken one after the other, which is what the contract asks for.

use posthorn_domain::{AgentId, ChannelId, MessageId, MessageSeq, PushMessage, Timestamp};
use posthorn_store::push::{
    AGENT_MESSAGES_MAX, Agent, Bite, ClearNode, Connect, Connected, Kept, Register, Registered,
    Trim,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Statement, params};

use super::{read, sql};
use crate::codec::int;
use crate::error::Failure;

pub(super) fn connect(conn: &Connection, batch: &[Connect]) -> Result<Vec<Connected>, Failure> {
    let mut agent = conn.prepare_cached(sql::AGENT)?;
    let mut channels = conn.prepare_cached(sql::CHANNELS)?;
    let mut update = conn.prepare_cached(sql::CONNECT)?;
    let mut one = |item: &Connect| -> Result<Connected, Failure> {
        let Some((no, mut router)) = read::find(&mut agent, item.agent)? else {
            return Ok(Connected::Unknown);
        };
        let free = router.node.as_ref().is_none_or(|node| *node == item.node);
        if router.connected_at > item.at || (router.connected_at == item.at && !free) {
            return Ok(Connected::Superseded { router });
        }
        let (at, seen) = (item.at.as_millis(), item.seen.as_millis());
        update.execute(params![no, item.node, at, seen])?;
        let before = router.node.replace(item.node.clone());
        router.connected_at = item.at;
        router.seen_at = router.seen_at.max(item.seen);
        let channels = read::channels(&mut channels, no)?;
        Ok(Connected::Here { agent: Agent { id: item.agent, router, channels }, before })
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn clear(conn: &Connection, batch: &[ClearNode]) -> Result<Vec<bool>, Failure> {
    let mut update = conn.prepare_cached(sql::CLEAR)?;
    let mut one = |item: &ClearNode| -> Result<bool, Failure> {
        let connected_at = item.connected_at.as_millis();
        Ok(update.execute(params![item.agent.as_bytes(), item.node, connected_at])? > 0)
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn drop_all(conn: &Connection, agents: &[AgentId]) -> Result<Vec<bool>, Failure> {
    let mut numbers = conn.prepare_cached(sql::AGENT_NO)?;
    let mut one = |agent: &AgentId| -> Result<bool, Failure> {
        let Some(no) = number(&mut numbers, *agent)? else { return Ok(false) };
        unname(conn, no)?;
        Ok(true)
    };
    agents.iter().map(&mut one).collect()
}

/// When agents without a name were seen: before all others.
const NAMELESS: i64 = i64::MIN;

/// Makes an agent unknown, at a cost that does not grow with its messages. They are removed by
/// [`expire_agents`], and then its number may be given to another one.
fn unname(conn: &Connection, no: i64) -> Result<(), Failure> {
    conn.prepare_cached(sql::DROP_CHANNELS)?.execute([no])?;
    conn.prepare_cached(sql::UNNAME)?.execute([no, NAMELESS])?;
    Ok(())
}

pub(super) fn register(conn: &Connection, batch: &[Register]) -> Result<Vec<Registered>, Failure> {
    let mut numbers = conn.prepare_cached(sql::AGENT_NO)?;
    let mut birth = conn.prepare_cached(sql::BIRTH)?;
    let mut rekey = conn.prepare_cached(sql::REKEY)?;
    let mut insert = conn.prepare_cached(sql::REGISTER)?;
    let mut one = |item: &Register| -> Result<Registered, Failure> {
        if let Some(born) = &item.birth {
            let connected_at = born.connected_at.as_millis();
            let at = item.at.as_millis();
            birth.execute(params![item.agent.as_bytes(), born.node, connected_at, at])?;
        }
        let Some(no) = number(&mut numbers, item.agent)? else {
            return Ok(Registered::AgentGone);
        };
        let (channel, key) = (item.channel.as_bytes(), item.key.as_ref().map(|key| &key.0[..]));
        if rekey.execute(params![no, channel, key])? > 0 {
            return Ok(Registered::Again);
        }
        insert.execute(params![no, channel, key, item.at.as_millis()])?;
        Ok(Registered::New)
    };
    batch.iter().map(&mut one).collect()
}

/// An agent's number, by [`sql::AGENT_NO`].
fn number(statement: &mut Statement<'_>, agent: AgentId) -> Result<Option<i64>, Failure> {
    Ok(statement.query_row([agent.as_bytes()], |row| row.get(0)).optional()?)
}

pub(super) fn unregister(
    conn: &Connection,
    batch: &[(AgentId, ChannelId)],
) -> Result<Vec<bool>, Failure> {
    let mut delete = conn.prepare_cached(sql::UNREGISTER)?;
    let mut one = |(agent, channel): &(AgentId, ChannelId)| -> Result<bool, Failure> {
        Ok(delete.execute(params![agent.as_bytes(), channel.as_bytes()])? > 0)
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn keep(conn: &Connection, batch: &[PushMessage]) -> Result<Vec<Kept>, Failure> {
    let mut statements = Keeping {
        number: conn.prepare_cached(sql::AGENT_NO)?,
        channel: conn.prepare_cached(sql::CHANNEL)?,
        repeat: conn.prepare_cached(sql::REPEAT)?,
        twin: conn.prepare_cached(sql::TWIN)?,
        remove: conn.prepare_cached(sql::REMOVE)?,
        keep: conn.prepare_cached(sql::KEEP)?,
    };
    batch.iter().map(|message| keep_one(&mut statements, message)).collect()
}

/// What it takes to keep a message, looked up once for a batch.
struct Keeping<'c> {
    number: CachedStatement<'c>,
    channel: CachedStatement<'c>,
    repeat: CachedStatement<'c>,
    twin: CachedStatement<'c>,
    remove: CachedStatement<'c>,
    keep: CachedStatement<'c>,
}

fn keep_one(with: &mut Keeping<'_>, message: &PushMessage) -> Result<Kept, Failure> {
    let Some(no) = number(&mut with.number, message.agent)? else { return Ok(Kept::AgentGone) };
    let (channel, id) = (message.channel.as_bytes(), message.id.as_bytes());
    if !with.channel.exists(params![no, channel])? {
        return Ok(Kept::ChannelGone);
    }
    let repeat: Option<i64> =
        with.repeat.query_row(params![no, id], |row| row.get(0)).optional()?;
    if let Some(seq) = repeat {
        return Ok(Kept::Again(MessageSeq(seq.unsigned_abs())));
    }
    let topic = message.topic.as_ref().map(|topic| topic.as_str());
    if topic.is_some() {
        let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let twin = with.twin.query_row(params![no, channel, topic], columns).optional()?;
        if let Some((seq, received_at)) = twin {
            if received_at > message.received_at.as_millis() {
                return Ok(Kept::Outdated);
            }
            with.remove.execute([seq])?;
        }
    }
    let headers = message.headers.as_ref();
    let seq = with.keep.insert(params![
        no,
        channel,
        id,
        topic,
        message.received_at.as_millis(),
        message.ttl,
        message.expires_at().as_millis(),
        headers.map(|headers| headers.encoding.as_str()),
        headers.and_then(|headers| headers.encryption.as_deref()),
        headers.and_then(|headers| headers.crypto_key.as_deref()),
        message.body.as_deref(),
    ])?;
    Ok(Kept::Stored(MessageSeq(seq.unsigned_abs())))
}

pub(super) fn ack(
    conn: &Connection,
    batch: &[(AgentId, MessageSeq)],
) -> Result<Vec<bool>, Failure> {
    let mut delete = conn.prepare_cached(sql::ACK)?;
    let mut one = |(agent, seq): &(AgentId, MessageSeq)| -> Result<bool, Failure> {
        Ok(delete.execute(params![agent.as_bytes(), int(seq.0)])? > 0)
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn delete(
    conn: &Connection,
    batch: &[(AgentId, MessageId)],
) -> Result<Vec<bool>, Failure> {
    let mut delete = conn.prepare_cached(sql::DELETE)?;
    let mut one = |(agent, id): &(AgentId, MessageId)| -> Result<bool, Failure> {
        Ok(delete.execute(params![agent.as_bytes(), id.as_bytes()])? > 0)
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn trim(conn: &Connection, batch: &[Trim], now: Timestamp) -> Result<Vec<u64>, Failure> {
    let mut delete = conn.prepare_cached(sql::TRIM)?;
    let mut one = |item: &Trim| -> Result<u64, Failure> {
        let values = params![item.agent.as_bytes(), now.as_millis(), int(item.keep as u64)];
        Ok(delete.execute(values)? as u64)
    };
    batch.iter().map(&mut one).collect()
}

pub(super) fn expire_messages(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Bite, Failure> {
    let mut delete = conn.prepare_cached(sql::EXPIRE_MESSAGES)?;
    let removed = delete.execute(params![now.as_millis(), int(limit as u64)])?;
    Ok(Bite { removed, more: removed == limit })
}

pub(super) fn expire_agents(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Bite, Failure> {
    let mut statement = conn.prepare_cached(sql::STALE)?;
    let values = params![before.as_millis(), int(limit as u64)];
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let stale: Vec<(i64, i64)> = statement.query_map(values, columns)?.collect::<Result<_, _>>()?;
    let mut messages = conn.prepare_cached(sql::DROP_MESSAGES)?;
    let mut agent = conn.prepare_cached(sql::DROP_AGENT)?;
    let mut room = AGENT_MESSAGES_MAX;
    let mut bite = Bite { removed: 0, more: stale.len() == limit };
    for (no, seen_at) in stale {
        if seen_at != NAMELESS {
            unname(conn, no)?;
            bite.removed += 1;
        }
        room -= messages.execute(params![no, int(room as u64)])?;
        if room > 0 {
            agent.execute([no])?;
        } else {
            bite.more = true;
        }
    }
    Ok(bite)
}
