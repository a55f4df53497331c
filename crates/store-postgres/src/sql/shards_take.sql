-- The caller holds the shards' locks, so that no write under the old epoch is under way. Who held a shard last and was
-- followed by nobody goes on under its epoch.
update shard_lease
set epoch = case when node = $1 then epoch else epoch + 1 end,
    node = $1,
    expires_at = clock_timestamp() + $3::int8 * interval '1 millisecond'
where shard = any($2::int2[]) and (node is null or node = $1 or expires_at <= clock_timestamp())
returning shard, epoch
