-- The attempts of some deliveries, without what they brought. Plan: attempt_delivery, partitions pruned.
select a.delivery, a.number, a.no, a.started_at, a.status, a.failure, a.manual, a.subscription
from unnest($1::uuid[]) as wanted(id)
cross join lateral (
    select * from attempt where delivery = wanted.id
) as a
