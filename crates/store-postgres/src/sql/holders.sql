select shard, node, epoch from shard_lease
where expires_at > clock_timestamp() and node is not null
order by shard
