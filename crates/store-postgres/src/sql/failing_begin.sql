-- The caller holds the shards' locks (shared). No subscription occurs twice; the caller sorts
-- them.
insert into failing (subscription, shard, since, exhausted, told)
select i.subscription, i.shard, i.since, i.exhausted, i.told
from unnest($1::uuid[], $2::int2[], $3::int8[], $4::uuid[], $5::int8[], $6::bool[], $7::bool[])
    as i(subscription, shard, epoch, node, since, exhausted, told)
where (
    select true from shard_lease s
    where s.shard = i.shard and s.epoch = i.epoch and s.node = i.node
    limit 1
) and (
    select true from subscription s where s.id = i.subscription and s.deleted_at is null limit 1
)
on conflict (subscription) do update
set since = least(failing.since, excluded.since),
    exhausted = failing.exhausted or excluded.exhausted,
    told = failing.told or excluded.told
