-- Which of these events are stored already. Plan: primary key probes, partitions pruned.
select e.id
from unnest($1::uuid[], $2::uuid[]) as wanted(tenant, id)
cross join lateral (
    select id from event where tenant = wanted.tenant and id = wanted.id limit 1
) as e
