-- What some events list, in the order given, and whether one of their deliveries may still be sent: it has not
-- ended (nobody waits for those of deleted subscriptions), or it has and is not among those that the caller holds.
-- Without the latter, only the former counts. Plan: primary keys, partitions pruned.
select
    e.id, e.deliveries,
    (
        select true
        from unnest(e.deliveries) as own(id)
        cross join lateral (
            select subscription from delivery_live where id = own.id and tenant = $1 limit 1
        ) as l
        where (select true from subscription_gone g where g.id = l.subscription) is null
        limit 1
    ) is true
    or (
        select true
        from unnest(e.deliveries) as own(id)
        cross join lateral (
            select id from delivery_done where tenant = $1 and id = own.id limit 1
        ) as d
        where d.id <> all($3::uuid[])
        limit 1
    ) is true as unfinished
from unnest($2::uuid[]) with ordinality as wanted(id, place)
cross join lateral (
    select id, deliveries from event where tenant = $1 and id = wanted.id limit 1
) as e
order by wanted.place
