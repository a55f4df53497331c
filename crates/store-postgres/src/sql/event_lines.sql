-- Events without their payloads, of which the length is known without reading them. Plan: primary key probes, partitions
-- pruned.
select e.*
from unnest($1::uuid[], $2::uuid[]) as wanted(tenant, id)
cross join lateral (
    select id, tenant, topic, type, attributes, key, content_type, ''::bytea as payload, accepted_at, publisher_id,
        deliver_at, retention, expunged_at, trace, octet_length(payload) as payload_bytes
    from event where tenant = wanted.tenant and id = wanted.id
    limit 1
) as e
