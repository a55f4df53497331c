-- Of all tenants. The whole of the tally, and ranges of delivery_live_place.
select
    coalesce(sum(events), 0)::int8 as events, coalesce(sum(pending), 0)::int8 as pending,
    coalesce(sum(delivered), 0)::int8 as delivered, coalesce(sum(dead), 0)::int8 as dead,
    coalesce(sum(cancelled), 0)::int8 as cancelled,
    -- What waits for deleted subscriptions is cancelled already, as readers see it.
    (
        select coalesce(sum(l.number), 0)::int8
        from subscription_gone g
        cross join lateral (select tenant from subscription where id = g.id limit 1) as s
        cross join lateral (
            select count(*) as number from delivery_live l
            where l.tenant = s.tenant and l.subscription = g.id and l.seq > 0
        ) as l
    ) as unswept
from tally
