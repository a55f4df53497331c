-- The events that prune_bite looks at: the next few of one partition.
select e.tenant, e.id, e.deliveries
from {partition} e
where (e.tenant, e.id) > ($1::uuid, $2::uuid)
  and coalesce(e.deliver_at, e.accepted_at) < $4::int8
order by e.tenant, e.id
limit $3::int8
