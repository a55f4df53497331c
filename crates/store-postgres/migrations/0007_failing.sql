-- When a subscription did not take part: [[from, until], …], the last one open while it lasts.
alter table subscription add column stops text not null default '[]';
update subscription set stops = '[[' || updated_at || ',null]]'
    where status <> '{"status":"active"}' and deleted_at is null;

-- Receivers that have only failed for a while. Always small.
create table failing (
    subscription uuid primary key,
    shard smallint not null,
    since bigint not null,
    exhausted boolean not null
);
