-- The events that prune_bite looks at: those given, whose own retention is over. Plan: primary key probes,
-- partitions pruned.
select e.tenant, e.id, e.deliveries
from unnest($1::uuid[], $2::uuid[]) as wanted(tenant, id)
cross join lateral (
    select tenant, id, deliveries from event
    where tenant = wanted.tenant and id = wanted.id
    limit 1
) as e
limit $3::int8
