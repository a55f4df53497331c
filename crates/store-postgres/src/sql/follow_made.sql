-- Attempts by their names, without what may be large, with their events and what became of their deliveries. Plan: attempt_delivery and the primary
-- keys of deliveries, partitions pruned.
select
    w.place, a.delivery, a.number, a.started_at, a.took, a.status, a.failure, a.detail, ''::bytea as response, a.late,
    a.timings, a.manual, a.subscription, a.response_expunged_at,
    null::text as request,
    coalesce(l.event, d.event) as event, coalesce(l.state, d.state) as state
from unnest($1::uuid[], $2::uuid[], $3::int4[], $4::int8[])
    with ordinality as w(tenant, delivery, number, no, place)
cross join lateral (
    select delivery, number, started_at, took, status, failure, detail, late, timings, manual, subscription,
        response_expunged_at
    from attempt
    where delivery = w.delivery and number = w.number and no = w.no
    limit 1
) as a
left join lateral (
    select event, state from delivery_live where id = w.delivery limit 1
) as l on true
left join lateral (
    select event, state from delivery_done where tenant = w.tenant and id = w.delivery limit 1
) as d on true
where coalesce(l.event, d.event) is not null
