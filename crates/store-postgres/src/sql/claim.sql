-- Plan: one probe of each primary key for each claim. The caller holds the shards' locks (shared).
update delivery_live l
set state = 1, due_at = c.until
from unnest(
    $1::uuid[], $2::int2[], $3::int8[], $4::uuid[], $5::int4[], $6::int8[]
) with ordinality as c(id, shard, epoch, node, expected, until, item)
join shard_lease s on s.shard = c.shard and s.epoch = c.epoch and s.node = c.node
where s.expires_at > clock_timestamp()
  and l.id = c.id and l.attempts = c.expected and l.due_at < 9223372036854775807
  and not exists (select from subscription_gone g where g.id = l.subscription)
returning c.item::int4 as item
