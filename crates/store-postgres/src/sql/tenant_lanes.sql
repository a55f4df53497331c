-- The deliveries that the next bite of tenant_events may remove, so that their lanes can be held before.
select distinct l.lane_slot
from (
    select id, deliveries from event
    where tenant = $1
    order by id
    limit $2::int8
) as e
cross join lateral unnest(e.deliveries) as listed(id)
cross join lateral (
    select lane_slot from delivery_live where id = listed.id limit 1
) as l
where l.lane_slot is not null
