with gone as (
    delete from node where id = $1
)
update shard_lease set node = null, expires_at = '-infinity' where node = $1
