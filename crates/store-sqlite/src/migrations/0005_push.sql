-- Web Push. Rows refer to agents by small numbers, like those of tenants and subscriptions. There
-- are no foreign keys: an agent goes in one transaction with all it has, and only the writer writes.

create table push_agent (
    no           integer primary key,
    id           blob not null unique,
    -- The node it is connected to, as far as anybody knows.
    node         text,
    -- Of the last connection, also when the node is off the record.
    connected_at integer not null,
    created_at   integer not null,
    seen_at      integer not null
) strict;
create index push_agent_by_age on push_agent (seen_at);

create table push_channel (
    agent      integer not null,
    id         blob not null,
    key_hash   blob,
    created_at integer not null,
    primary key (agent, id)
) strict, without rowid;

create table push_message (
    -- Never given out twice, whatever was deleted: readers go on after the last one they saw.
    seq         integer primary key autoincrement,
    agent       integer not null,
    channel     blob not null,
    id          blob not null,
    topic       text,
    received_at integer not null,
    ttl         integer not null,
    -- The first moment at which it is worth nothing; follows from the two before.
    expires_at  integer not null,
    encoding    text,
    encryption  text,
    crypto_key  text,
    body        blob
) strict;
-- Ends in seq by itself: an agent's messages in order.
create index push_message_by_agent on push_message (agent);
create unique index push_message_by_id on push_message (agent, id);
create unique index push_message_topic on push_message (agent, channel, topic)
    where topic is not null;
create index push_message_expiry on push_message (expires_at);
