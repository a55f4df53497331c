-- Web Push. The row of an agent is also its lock: who writes anything about an agent holds it, taken
-- in order of id, until the commit. That makes sequences of messages commit order, keeps messages
-- and channels from being added to an agent that goes, and needs no foreign keys, whose checks would
-- only lock the same row again.

create table push_agent (
    id uuid primary key,
    -- The node it is connected to, as far as anybody knows.
    node text,
    -- Of the last connection, also when the node is off the record.
    connected_at bigint not null,
    created_at bigint not null,
    seen_at bigint not null
) with (fillfactor = 80);
create index push_agent_seen on push_agent (seen_at);

create table push_channel (
    agent uuid not null,
    id uuid not null,
    key_hash bytea,
    created_at bigint not null,
    primary key (agent, id)
);

-- Never gives a number twice; readers go on after the last one they saw.
create sequence push_seq as bigint;

-- One table, not one for each month or day: see docs/adr/0015-messages-of-web-push.md.
create table push_message (
    agent uuid not null,
    seq bigint not null,
    channel uuid not null,
    id uuid not null,
    topic text collate "C",
    received_at bigint not null,
    ttl bigint not null,
    -- The first moment at which it is worth nothing; follows from the two before.
    expires_at bigint not null,
    encoding text,
    encryption text,
    crypto_key text,
    body bytea,
    primary key (agent, seq)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);
-- Bodies are encrypted: trying to compress them is lost work.
alter table push_message alter column body set storage external;
create unique index push_message_id on push_message (agent, id);
create unique index push_message_topic on push_message (agent, channel, topic)
    where topic is not null;
create index push_message_expiry on push_message (expires_at);
