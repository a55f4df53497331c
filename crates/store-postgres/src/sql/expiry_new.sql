-- Writes down when the retention of events is over that are stored in the same transaction. Plan: primary key
-- probes, partitions pruned.
insert into expiry (tenant, event, at)
select e.tenant, e.id, w.at
from unnest($1::uuid[], $2::uuid[], $3::int8[]) as w(tenant, id, at)
cross join lateral (
    select tenant, id from event where tenant = w.tenant and id = w.id limit 1
) as e
on conflict do nothing
