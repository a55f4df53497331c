-- What some events have for some subscriptions, by one snapshot: a delivery that is just being moved is in one
-- place or the other. Says of each event that it is there, also when it has nothing for them. Plan: primary
-- keys, partitions pruned.
with listed as materialized (
    select e.id as event, e.accepted_at, e.deliver_at, e.deliveries, e.expunged_at
    from unnest($2::uuid[]) as wanted(id)
    cross join lateral (
        select id, accepted_at, deliver_at, deliveries, expunged_at
        from event where tenant = $1 and id = wanted.id
        limit 1
    ) as e
)
select
    event, accepted_at, deliver_at, null::uuid as id, null::uuid as subscription,
    null::int2 as state, null::text as lane, expunged_at
from listed
union all
select e.event, e.accepted_at, e.deliver_at, l.id, l.subscription, l.state, l.lane, null::int8
from listed e
cross join lateral unnest(e.deliveries) as own(id)
cross join lateral (
    select id, subscription, state, lane from delivery_live
    where id = own.id and tenant = $1
    limit 1
) as l
where l.subscription = any($3::uuid[])
union all
select e.event, e.accepted_at, e.deliver_at, d.id, d.subscription, d.state, d.lane, null::int8
from listed e
cross join lateral unnest(e.deliveries) as own(id)
cross join lateral (
    select id, subscription, state, lane from delivery_done
    where tenant = $1 and id = own.id
    limit 1
) as d
where d.subscription = any($3::uuid[])
