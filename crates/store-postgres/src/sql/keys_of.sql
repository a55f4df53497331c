-- What is stored under these idempotency keys now. Plan: primary key probes.
select k.tenant, k.key, k.fingerprint, k.event
from unnest($1::uuid[], $2::text[]) as wanted(tenant, key)
cross join lateral (
    select * from idempotency where tenant = wanted.tenant and key = wanted.key limit 1
) as k
