-- Which of these events are stored already. Plan: primary key probes, partitions pruned.
select e.id
from unnest($1::uuid[], $2::uuid[]) as wanted(tenant, id)
join event e on e.tenant = wanted.tenant and e.id = wanted.id
