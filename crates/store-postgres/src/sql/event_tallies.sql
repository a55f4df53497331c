-- What became of the deliveries of some events, as readers see them, at most so many of each; and how many each lists. Plan:
-- primary keys, partitions pruned.
select e.id as event, e.listed, s.state, count(*) as deliveries
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select id, deliveries[1:$3::int4] as ids, coalesce(cardinality(deliveries), 0) as listed
    from event where tenant = $1 and id = wanted.id limit 1
) as e
cross join lateral (
    select case when g.id is null then l.state else 20::int2 end as state
    from unnest(e.ids) as own(id)
    cross join lateral (
        select state, subscription from delivery_live where id = own.id and tenant = $1 limit 1
    ) as l
    left join subscription_gone g on g.id = l.subscription
    union all
    select d.state
    from unnest(e.ids) as own(id)
    cross join lateral (
        select state from delivery_done where tenant = $1 and id = own.id limit 1
    ) as d
) as s
group by e.id, e.listed, s.state
