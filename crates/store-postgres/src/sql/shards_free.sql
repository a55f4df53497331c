-- Those that this node may take, without waiting for anybody.
select shard::int4 as shard from shard_lease
where shard = any($2::int2[]) and (node is null or node = $1 or expires_at <= clock_timestamp())
order by shard
