-- Plan: the primary key backwards, from `before` on.
select id, tenant, topic, type, attributes, key, content_type, payload, accepted_at
from event
where tenant = $1 and id < $2
  and ($3::text is null or topic = $3)
  and ($4::text is null or type = $4)
order by id desc
limit $5::int8
