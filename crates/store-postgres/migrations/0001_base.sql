-- Times are milliseconds since 1970 (bigint), as the domain counts them; only leases are
-- timestamptz, because they are judged by this server's clock. 9223372036854775807 is "not until
-- something else happens": a live delivery due then is parked behind others of its lane.
--
-- Delivery states: 0 pending, 1 in flight, 2 delivered, 10-13 dead (exhausted, permanent, gate,
-- expired), 20-22 cancelled (unsubscribed, operator, dropped).

-- ---- catalog -----------------------------------------------------------------------------------

create table catalog (
    one boolean primary key default true check (one),
    version bigint not null
);
insert into catalog (version) values (1);

create table tenant (
    id uuid primary key,
    name text collate "C" not null unique,
    created_at bigint not null,
    version bigint not null
);
create index tenant_version on tenant (version);
insert into tenant (id, name, created_at, version)
values ('00000000-0000-0000-0000-000000000000', 'default', 0, 1);

create table topic (
    tenant uuid not null references tenant,
    name text collate "C" not null,
    description text not null,
    attributes text not null,
    created_at bigint not null,
    version bigint not null,
    removed boolean not null default false,
    primary key (tenant, name)
);
create index topic_version on topic (version);

create table subscription (
    id uuid primary key,
    tenant uuid not null references tenant,
    description text not null,
    destination text not null,
    filter text not null,
    profile text not null,
    overrides text not null,
    secrets text not null,
    status text not null,
    created_at bigint not null,
    updated_at bigint not null,
    version bigint not null,
    deleted_at bigint
);
create index subscription_version on subscription (version);

-- Deleted subscriptions that may still have unfinished deliveries. Always small, so that the hot
-- path can afford to look.
create table subscription_gone (
    id uuid primary key,
    shard smallint not null,
    deleted_at bigint not null
);

create table api_key (
    id uuid primary key,
    tenant uuid references tenant,
    description text not null,
    scopes text not null,
    hash bytea not null,
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    version bigint not null
);
create index api_key_version on api_key (version);

-- ---- events ------------------------------------------------------------------------------------

-- Immutable. Partitioned by day of the id (UUIDv7). The row lists its deliveries, which saves an
-- index on the event in both delivery tables.
create table event (
    id uuid not null,
    tenant uuid not null,
    topic text collate "C" not null,
    type text collate "C" not null,
    attributes text not null,
    key text,
    content_type text not null,
    payload bytea not null,
    accepted_at bigint not null,
    deliveries uuid[] not null,
    primary key (tenant, id)
) partition by range (id);
-- Compressing costs more than writing.
alter table event alter column payload set storage external;
create table event_rest partition of event default;

create table idempotency (
    tenant uuid not null,
    key text collate "C" not null,
    fingerprint bytea not null,
    event uuid not null,
    accepted_at bigint not null,
    primary key (tenant, key)
);
create index idempotency_accepted on idempotency (accepted_at);

-- ---- deliveries --------------------------------------------------------------------------------

create sequence delivery_seq;

-- Only what is not finished. Rows come and go all the time, so it is vacuumed eagerly.
create table delivery_live (
    id uuid primary key,
    event uuid not null,
    subscription uuid not null,
    tenant uuid not null,
    seq bigint not null,
    due_at bigint not null,
    budget_began bigint not null,
    created_at bigint not null,
    attempts integer not null,
    budget_base integer not null,
    shard smallint not null,
    state smallint not null,
    lane_slot smallint,
    lane text collate "C"
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
-- The durable timer.
create index delivery_live_due on delivery_live (shard, subscription, due_at, seq)
    where due_at < 9223372036854775807;
-- No lane ever has two heads.
create unique index delivery_live_head on delivery_live (subscription, lane)
    where lane is not null and due_at < 9223372036854775807;
create index delivery_live_parked on delivery_live (subscription, lane, seq)
    where due_at = 9223372036854775807;

-- Dead letters that stop their lane.
create table lane_block (
    subscription uuid not null,
    lane text collate "C" not null,
    delivery uuid not null unique,
    primary key (subscription, lane)
);

-- What has ended. Partitioned by day of the id.
create table delivery_done (
    id uuid not null,
    event uuid not null,
    subscription uuid not null,
    tenant uuid not null,
    seq bigint not null,
    budget_began bigint not null,
    created_at bigint not null,
    ended_at bigint not null,
    attempts integer not null,
    budget_base integer not null,
    state smallint not null,
    lane text collate "C",
    primary key (tenant, id)
) partition by range (id);
create index delivery_done_subscription on delivery_done (subscription, id);
create index delivery_done_dead on delivery_done (tenant, id) where state between 10 and 19;
create table delivery_done_rest partition of delivery_done default;

-- Append-only. Partitioned by day of the delivery's id.
create table attempt (
    delivery uuid not null,
    started_at bigint not null,
    took bigint not null,
    number integer not null,
    status smallint,
    late boolean not null,
    failure text,
    detail text not null,
    response bytea not null
) partition by range (delivery);
create index attempt_delivery on attempt (delivery, number);
create table attempt_rest partition of attempt default;

create table redrive (
    id uuid primary key,
    tenant uuid not null,
    filter text not null,
    per_second integer not null,
    state smallint not null,
    total bigint not null,
    moved bigint not null,
    created_at bigint not null,
    finished_at bigint,
    cursor uuid
);
create index redrive_tenant on redrive (tenant, id);

-- ---- membership --------------------------------------------------------------------------------

create table node (
    id uuid primary key,
    expires_at timestamptz not null,
    catalog bigint not null
);

create table shard_lease (
    shard smallint primary key,
    node uuid,
    epoch bigint not null,
    expires_at timestamptz not null
) with (fillfactor = 50);
insert into shard_lease (shard, node, epoch, expires_at)
select shard, null, 0, '-infinity' from generate_series(0, 63) as shard;
