-- A lease that has run out is renewed as well, under its epoch, unless somebody took it: the row is the judge, and
-- whoever comes first has it. So an outage of the database costs nobody its shards.
with alive as (
    insert into node (id, expires_at, catalog, seen_at, version)
    values ($1, clock_timestamp() + $2::int8 * interval '1 millisecond', $3, clock_timestamp(), $4)
    on conflict (id) do update set
        expires_at = excluded.expires_at, catalog = excluded.catalog,
        seen_at = excluded.seen_at, version = excluded.version
),
forgotten as (
    delete from node where expires_at < clock_timestamp() - interval '1 day' and id <> $1
)
update shard_lease
set expires_at = clock_timestamp() + $2::int8 * interval '1 millisecond'
where node = $1
