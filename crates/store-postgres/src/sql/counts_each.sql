-- Of some tenants, in the order in which they are asked for. Plan: for each a range of the tally's primary key, and
-- ranges of delivery_live_place.
with unswept as (
    -- What waits for deleted subscriptions is cancelled already, as readers see it.
    select s.tenant, sum(l.number)::int8 as number
    from subscription_gone g
    cross join lateral (select tenant from subscription where id = g.id limit 1) as s
    cross join lateral (
        select count(*) as number from delivery_live l
        where l.tenant = s.tenant and l.subscription = g.id and l.seq > 0
    ) as l
    where s.tenant = any($1::uuid[])
    group by s.tenant
)
select
    t.events, t.pending, t.delivered, t.dead, t.cancelled, coalesce(u.number, 0)::int8 as unswept
from unnest($1::uuid[]) with ordinality as ask(tenant, place)
cross join lateral (
    select
        coalesce(sum(events), 0)::int8 as events, coalesce(sum(pending), 0)::int8 as pending,
        coalesce(sum(delivered), 0)::int8 as delivered, coalesce(sum(dead), 0)::int8 as dead,
        coalesce(sum(cancelled), 0)::int8 as cancelled
    from tally
    where tally.tenant = ask.tenant
) as t
left join unswept u on u.tenant = ask.tenant
order by ask.place
