-- When a subscription did not take part: [[from, until], …], the last one open while it lasts.
alter table subscription add column stops text not null default '[]';
update subscription set stops = '[[' || updated_at || ',null]]'
    where status <> '{"status":"active"}' and deleted_at is null;

-- Receivers that have only failed for a while. Always small.
create table failing (
    subscription integer primary key references subscription (no),
    since        integer not null,
    exhausted    integer not null
) strict;
