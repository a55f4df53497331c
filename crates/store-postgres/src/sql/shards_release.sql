update shard_lease s
set node = null, expires_at = '-infinity'
from unnest($2::int2[], $3::int8[]) as g(shard, epoch)
where s.shard = g.shard and s.epoch = g.epoch and s.node = $1
