-- Events for deliveries, in the order given, until their payloads exceed a number of bytes. The
-- length of a large payload is known without reading it. Plan: primary key probes, partitions
-- pruned.
select id, tenant, topic, type, attributes, key, content_type, payload, accepted_at, publisher_id,
    deliver_at, retention, expunged_at, trace
from (
    select e.*, sum(octet_length(e.payload)) over (order by wanted.place) - octet_length(e.payload)
        as before
    from unnest($1::uuid[], $2::uuid[]) with ordinality as wanted(tenant, id, place)
    cross join lateral (
        select * from event where tenant = wanted.tenant and id = wanted.id limit 1
    ) as e
) as found
where before <= $3::int8
