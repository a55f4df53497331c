-- Times are milliseconds since 1970 UTC; 9223372036854775807 means "not until something happens".
-- Ids are the sixteen bytes of the domain's ids. Inside, rows refer to each other by small numbers
-- (`no`, `seq`): they keep rows and indexes small, and writing those is most of the write path.

-- One row of what is true about the whole store.
create table store (
    one             integer primary key check (one = 1),
    -- The version of the last change of the catalog.
    catalog_version integer not null,
    -- No delivery gets a seq at or below this again, also after the last ones were pruned.
    seq_floor       integer not null
) strict;

create table tenant (
    no         integer primary key,
    id         blob not null unique check (length(id) = 16),
    name       text not null unique,
    created_at integer not null,
    version    integer not null
) strict;

create table topic (
    tenant      integer not null references tenant (no),
    name        text not null,
    description text not null,
    attributes  text not null,
    created_at  integer not null,
    version     integer not null,
    -- A topic that is gone leaves its line, so that others learn of the removal.
    deleted     integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;

create table subscription (
    -- 64 × n + shard: a write can check the shard of a delivery without looking here.
    no          integer primary key,
    id          blob not null unique check (length(id) = 16),
    tenant      integer not null references tenant (no),
    description text not null,
    destination text not null,
    filter      text not null,
    profile     text not null,
    overrides   text not null,
    status      text not null,
    created_at  integer not null,
    updated_at  integer not null,
    version     integer not null,
    deleted_at  integer,
    -- 1 when no unfinished delivery of a deleted subscription is left.
    swept       integer not null default 0
) strict;

create index subscription_unswept on subscription (no) where deleted_at is not null and swept = 0;

create table subscription_secret (
    subscription integer not null references subscription (no),
    position     integer not null,
    name         text not null,
    sealed       blob not null,
    created_at   integer not null,
    expires_at   integer,
    primary key (subscription, position)
) strict, without rowid;

create table api_key (
    id          blob not null primary key check (length(id) = 16),
    tenant      integer references tenant (no),
    description text not null,
    scopes      text not null,
    hash        blob not null check (length(hash) = 32),
    created_at  integer not null,
    expires_at  integer,
    revoked_at  integer,
    version     integer not null
) strict, without rowid;

-- The hot tables have no foreign keys: each would cost a lookup for every row written, and the one
-- writer that could break them is also the one that checks.
create table event (
    no           integer primary key,
    id           blob not null,
    tenant       integer not null,
    accepted_at  integer not null,
    -- The deliveries of an event are neighbours: first_seq .. first_seq + deliveries.
    first_seq    integer not null,
    deliveries   integer not null,
    topic        text not null,
    event_type   text not null,
    attributes   text,
    key          text,
    content_type text not null,
    payload      blob not null
) strict;

create unique index event_by_id on event (tenant, id);

create table idempotency (
    tenant      integer not null,
    key         text not null,
    fingerprint blob not null,
    event       blob not null,
    accepted_at integer not null,
    primary key (tenant, key)
) strict, without rowid;

create index idempotency_by_age on idempotency (accepted_at);

create table delivery (
    seq          integer primary key,
    id           blob not null,
    event        integer not null,
    tenant       integer not null,
    subscription integer not null,
    -- 0 pending, 1 in flight, 2 delivered, 10-13 dead, 20-22 cancelled.
    state        integer not null,
    due_at       integer not null,
    attempts     integer not null,
    budget_base  integer not null,
    -- Null: when its event was accepted.
    budget_began integer,
    ended_at     integer,
    -- Null: no order; empty: the whole subscription.
    lane         text,
    -- 1 while it is unfinished in a lane, or dead and blocking it; else null.
    holds_lane   integer
) strict;

-- Tenant and subscription ride along so that lists of one of them pass over the others without
-- touching their rows. An index of its own by subscription would make every commit dirty one page
-- for each subscription it writes to, which costs more than everything else in a small commit.
create unique index delivery_by_id on delivery (id, tenant, subscription);
-- The durable timer. Parked deliveries sort last; seq is part of the key, since it is the rowid.
create index delivery_due on delivery (subscription, due_at) where state < 2;
create index delivery_lane on delivery (subscription, lane) where holds_lane = 1;
create index delivery_dead on delivery (tenant) where state >= 10 and state < 20;
create index delivery_dead_by_id on delivery (tenant, id) where state >= 10 and state < 20;

create table attempt (
    delivery   integer not null,
    number     integer not null,
    started_at integer not null,
    took       integer not null,
    late       integer not null,
    status     integer,
    failure    text,
    detail     text,
    response   blob,
    primary key (delivery, number, started_at)
) strict, without rowid;

create table redrive (
    id          blob not null primary key check (length(id) = 16),
    tenant      integer not null references tenant (no),
    filter      text not null,
    per_second  integer not null,
    state       integer not null,
    total       integer not null,
    moved       integer not null,
    -- The seq of the last dead letter that was looked at.
    cursor      integer not null,
    created_at  integer not null,
    finished_at integer
) strict, without rowid;

-- Only epochs outlive the process; who holds what is the process's own memory.
create table shard (
    number integer primary key,
    epoch  integer not null
) strict;

insert into store values (1, 1, 0);
insert into tenant values (1, zeroblob(16), 'default', 0, 1);
