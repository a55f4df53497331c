-- Attempts of a tenant by their names, in the order given, with their events. Plan: attempt_delivery and the
-- primary keys of deliveries, partitions pruned.
select
    a.delivery, a.number, a.started_at, a.took, a.status, a.failure, a.detail, a.response, a.late,
    a.timings, a.manual, a.subscription, a.response_expunged_at, a.request,
    coalesce(
        (select d.event from delivery_live d where d.id = a.delivery limit 1),
        (select d.event from delivery_done d where d.tenant = $1 and d.id = a.delivery limit 1)
    ) as event
from unnest($2::uuid[], $3::int4[], $4::int8[]) with ordinality as w(delivery, number, no, place)
cross join lateral (
    select * from attempt
    where delivery = w.delivery and number = w.number and no = w.no
    limit 1
) as a
order by w.place
