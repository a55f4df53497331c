-- Unfinished deliveries of deleted subscriptions. Plan: ranges of delivery_live_due and of
-- delivery_live_parked.
select found.id
from subscription_gone g
cross join lateral (
    (
        select l.id from delivery_live l
        where l.shard = g.shard and l.subscription = g.id and l.due_at < 9223372036854775807
        limit $1::int8
    )
    union all
    (
        select l.id from delivery_live l
        where l.subscription = g.id and l.due_at = 9223372036854775807
        limit $1::int8
    )
) as found
limit $1::int8
