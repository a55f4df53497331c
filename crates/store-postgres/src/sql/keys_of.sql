-- What is stored under these idempotency keys now. Plan: primary key probes.
select k.tenant, k.key, k.fingerprint, k.event
from unnest($1::uuid[], $2::text[]) as wanted(tenant, key)
join idempotency k on k.tenant = wanted.tenant and k.key = wanted.key
