-- The attempts of some deliveries, without what they brought. The offset keeps the server from beginning with
-- the attempts. Plan: attempt_delivery, partitions pruned.
select 1 as stream, a.delivery, a.number, a.no, a.started_at, a.status, a.failure, a.manual, a.subscription
from unnest($1::uuid[]) as wanted(id)
cross join lateral (
    select * from attempt where delivery = wanted.id offset 0
) as a
