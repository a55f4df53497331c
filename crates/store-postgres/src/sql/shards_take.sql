-- The caller holds the shards' locks, so that no write under the old epoch is under way. Also who held a shard last gets a new
-- epoch: it asks only for what it does not know to be its own.
update shard_lease
set epoch = epoch + 1,
    node = $1,
    expires_at = clock_timestamp() + $3::int8 * interval '1 millisecond'
where shard = any($2::int2[]) and (node is null or node = $1 or expires_at <= clock_timestamp())
returning shard, epoch
