-- Figures of the past. What a node has counted of a scope in a minute. Each node writes rows of its own, so that none
-- waits for another; the rows of the present minute are written again and again.
create table rollup (
    at bigint not null,
    scope text collate "C" not null,
    node uuid not null,
    -- The number of what it was written with.
    number bigint not null,
    counts bytea not null,
    primary key (at, scope, node)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

-- The same by the hour, of all nodes together.
create table rollup_hour (
    at bigint not null,
    scope text collate "C" not null,
    counts bytea not null,
    primary key (at, scope)
) with (fillfactor = 70);

-- The last row of rollup that is in its hour. One row.
create table folded_rollup (
    one boolean primary key default true check (one),
    at bigint not null,
    scope text collate "C" not null,
    node uuid not null
);
insert into folded_rollup (at, scope, node) values (0, '', '00000000-0000-0000-0000-000000000000');

-- Following the log: the transaction that a row came with. What is older than all transactions that are still running
-- is complete, so that nothing appears behind a reader. Rows of before have none, and are not followed.
alter table event add column tx bigint;
alter table event alter column tx set default pg_current_xact_id()::text::bigint;
create index event_tx on event (tx) where tx is not null;
alter table attempt add column tx bigint;
alter table attempt alter column tx set default pg_current_xact_id()::text::bigint;
create index attempt_tx on attempt (tx) where tx is not null;
