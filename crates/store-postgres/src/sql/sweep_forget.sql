-- Deleted subscriptions with nothing left to cancel need no more looking at.
with swept as (
    delete from subscription_gone g
    where (
        select true from delivery_live l
        where l.shard = g.shard and l.subscription = g.id and l.due_at < 9223372036854775807
        limit 1
    ) is null and (
        select true from delivery_live l
        where l.subscription = g.id and l.due_at = 9223372036854775807
        limit 1
    ) is null
    returning id
)
delete from lane_block b using swept where b.subscription = swept.id
