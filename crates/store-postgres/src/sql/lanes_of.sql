-- The lanes of some deliveries of a tenant, which nobody holds yet: to know which locks to take. Plan: primary keys,
-- partitions pruned.
select l.subscription, l.lane
from delivery_live l
where l.id = any($2::uuid[]) and l.tenant = $1 and l.lane is not null
union
select d.subscription, d.lane
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select subscription, lane from delivery_done where tenant = $1 and id = wanted.id limit 1
) as d
where d.lane is not null
