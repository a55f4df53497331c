//! The statements, with the plan each relies on. A test asks SQLite whether it still chooses them.

/// The number of an agent, inside another statement: a lookup by id.
macro_rules! agent_no {
    () => {
        "(select no from push_agent where id = ?1)"
    };
}

/// Search by id.
pub(crate) const AGENT: &str =
    "select no, node, connected_at, created_at, seen_at from push_agent where id = ?1";

/// Search by primary key.
pub(crate) const CHANNEL: &str =
    "select id, key_hash from push_channel where agent = ?1 and id = ?2";

/// A range of the primary key.
pub(crate) const CHANNELS: &str =
    "select id, key_hash from push_channel where agent = ?1 order by id";

/// A page of an agent's messages, by an index that is in order of seq.
macro_rules! messages {
    ($index:literal, $topic:literal) => {
        concat!(
            "select seq, channel, id, topic, received_at, ttl, encoding, encryption, crypto_key, \
             body from push_message indexed by ",
            $index,
            " where agent = ",
            agent_no!(),
            " and seq > ?2 and topic is ",
            $topic,
            " and expires_at > ?3 order by seq limit ?4"
        )
    };
}

/// A range of `push_message_topics`.
pub(crate) const TOPIC_MESSAGES: &str = messages!("push_message_topics", "not null");

/// A range of `push_message_by_agent`. It passes over messages with a topic, which are few: who reads
/// this has read those before, and has them acknowledged soon.
pub(crate) const PLAIN_MESSAGES: &str = messages!("push_message_by_agent", "null");

/// A range of `push_message_by_agent`, with a look at each row, up to the limit. Backwards, because the
/// newest have not expired.
pub(crate) const COUNT: &str = concat!(
    "select count(*) from (select 1 from push_message indexed by push_message_by_agent \
     where agent = ",
    agent_no!(),
    " and expires_at > ?2 order by seq desc limit ?3)"
);

pub(crate) const CONNECT: &str = "update push_agent set node = ?2, connected_at = ?3, \
    seen_at = max(seen_at, ?4) where no = ?1";

pub(crate) const CLEAR: &str =
    "update push_agent set node = null where id = ?1 and node = ?2 and connected_at = ?3";

pub(crate) const BIRTH: &str = "insert into push_agent (id, node, connected_at, created_at, \
    seen_at) values (?1, ?2, ?3, ?4, max(?3, ?4)) on conflict (id) do nothing";

pub(crate) const AGENT_NO: &str = "select no from push_agent where id = ?1";

pub(crate) const REGISTER: &str =
    "insert into push_channel (agent, id, key_hash, created_at) values (?1, ?2, ?3, ?4)";

pub(crate) const REKEY: &str = "update push_channel set key_hash = ?3 where agent = ?1 and id = ?2";

pub(crate) const UNREGISTER: &str =
    concat!("delete from push_channel where agent = ", agent_no!(), " and id = ?2");

/// Search by `push_message_by_id`.
pub(crate) const REPEAT: &str = "select seq from push_message where agent = ?1 and id = ?2";

/// Search by `push_message_topic`.
pub(crate) const TWIN: &str = "select seq, received_at from push_message \
    where agent = ?1 and channel = ?2 and topic = ?3";

pub(crate) const KEEP: &str = "insert into push_message (agent, channel, id, topic, received_at, \
    ttl, expires_at, encoding, encryption, crypto_key, body) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

pub(crate) const REMOVE: &str = "delete from push_message where seq = ?1";

/// Search by seq.
pub(crate) const ACK: &str =
    concat!("delete from push_message where agent = ", agent_no!(), " and seq = ?2");

/// Search by `push_message_by_id`.
pub(crate) const DELETE: &str =
    concat!("delete from push_message where agent = ", agent_no!(), " and id = ?2");

/// A range of `push_message_by_agent`, backwards, to find the newest that goes; then the range up to
/// there.
pub(crate) const TRIM: &str = concat!(
    "delete from push_message where agent = ",
    agent_no!(),
    " and expires_at > ?2 and seq <= (select seq from push_message indexed by \
     push_message_by_agent where agent = ",
    agent_no!(),
    " and expires_at > ?2 order by seq desc limit 1 offset ?3)"
);

/// A scan in order of numbers, up to the limit. Agents that were dropped have no name any more, and are not counted.
pub(crate) const CENSUS_AGENTS: &str = "select node, count(*) from ( \
    select node from push_agent where length(id) = 16 limit ?1) group by node order by node";

/// A scan of an index, up to the limit.
pub(crate) const CENSUS_MESSAGES: &str =
    "select count(*) from (select 1 from push_message indexed by push_message_expiry limit ?1)";

/// A range of `push_message_expiry`.
pub(crate) const EXPIRE_MESSAGES: &str = "delete from push_message where seq in ( \
    select seq from push_message indexed by push_message_expiry where expires_at <= ?1 \
    order by expires_at limit ?2)";

/// Takes its name from an agent: what it has is found by nobody any more, and its number is not given
/// to another. It is the stalest of all from now on. The name it gets is longer than any id.
pub(crate) const UNNAME: &str = "update push_agent set \
    id = cast(printf('dropped %020d', no) as blob), node = null, seen_at = ?2 where no = ?1";

/// A range of `push_agent_by_age`.
pub(crate) const STALE: &str = "select no, seen_at from push_agent indexed by push_agent_by_age \
    where seen_at < ?1 order by seen_at limit ?2";

/// A range of `push_message_by_agent`.
pub(crate) const DROP_MESSAGES: &str = "delete from push_message where seq in ( \
    select seq from push_message indexed by push_message_by_agent where agent = ?1 \
    order by seq limit ?2)";

pub(crate) const DROP_CHANNELS: &str = "delete from push_channel where agent = ?1";
pub(crate) const DROP_AGENT: &str = "delete from push_agent where no = ?1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::{check, database};

    #[test]
    fn agents_and_channels_are_searched_by_key() {
        let conn = database();
        for sql in [AGENT, CLEAR] {
            check(&conn, sql, &["push_agent USING INDEX sqlite_autoindex_push_agent_1 (id=?)"]);
        }
        check(&conn, CHANNEL, &["push_channel USING PRIMARY KEY (agent=? AND id=?)"]);
        check(&conn, REKEY, &["push_channel USING PRIMARY KEY (agent=? AND id=?)"]);
        check(&conn, UNREGISTER, &["push_channel USING PRIMARY KEY (agent=? AND id=?)"]);
        check(&conn, CHANNELS, &["push_channel USING PRIMARY KEY (agent=?)"]);
        check(&conn, STALE, &["push_agent USING COVERING INDEX push_agent_by_age (seen_at<?)"]);
    }

    #[test]
    fn messages_are_searched_by_agent_id_and_topic() {
        let conn = database();
        check(&conn, TOPIC_MESSAGES, &["INDEX push_message_topics (agent=? AND rowid>?)"]);
        check(&conn, PLAIN_MESSAGES, &["INDEX push_message_by_agent (agent=? AND rowid>?)"]);
        check(&conn, COUNT, &["INDEX push_message_by_agent (agent=?)"]);
        check(&conn, REPEAT, &["INDEX push_message_by_id (agent=? AND id=?)"]);
        check(&conn, DELETE, &["INDEX push_message_by_id (agent=? AND id=?)"]);
        check(&conn, TWIN, &["INDEX push_message_topic (agent=? AND channel=? AND topic=?)"]);
        check(&conn, ACK, &["push_message USING INTEGER PRIMARY KEY (rowid=?)"]);
        check(&conn, TRIM, &["INDEX push_message_by_agent (agent=?)"]);
        check(&conn, DROP_MESSAGES, &["INDEX push_message_by_agent (agent=?)"]);
        check(
            &conn,
            EXPIRE_MESSAGES,
            &["push_message USING COVERING INDEX push_message_expiry (expires_at<?)"],
        );
    }
}
