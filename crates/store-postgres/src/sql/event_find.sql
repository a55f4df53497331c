-- Plan: primary key, partitions pruned.
select id, tenant, topic, type, attributes, key, content_type, payload, accepted_at, publisher_id,
    deliver_at, retention, expunged_at, trace
from event where tenant = $1 and id = $2
