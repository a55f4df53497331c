-- The caller holds the shards' locks (shared).
delete from failing where subscription = any(array(
    select i.subscription
    from unnest($1::uuid[], $2::int2[], $3::int8[], $4::uuid[]) as i(subscription, shard, epoch, node)
    where (
        select true from shard_lease s
        where s.shard = i.shard and s.epoch = i.epoch and s.node = i.node
        limit 1
    )
))
