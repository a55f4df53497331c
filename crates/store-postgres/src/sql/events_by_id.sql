-- Plan: primary key, partitions pruned.
select e.id, e.tenant, e.topic, e.type, e.attributes, e.key, e.content_type, e.payload, e.accepted_at, e.publisher_id,
    deliver_at, retention, expunged_at, trace
from unnest($2::uuid[]) with ordinality as wanted(id, place)
cross join lateral (select * from event where tenant = $1 and id = wanted.id limit 1) as e
order by wanted.place
