-- For each lane: whether somebody is at its head, and the dead letter that blocks it. Plan: probes
-- of delivery_live_head and of the primary key of lane_block.
select
    w.item::int4 as item,
    -- Not `exists`, for which the server might read the whole index into a hash table.
    coalesce((
        select true from delivery_live l
        where l.subscription = w.subscription and l.lane = w.lane
          and l.due_at < 9223372036854775807
        limit 1
    ), false) as headed,
    (select b.delivery from lane_block b where b.subscription = w.subscription and b.lane = w.lane)
        as blocker
from unnest($1::uuid[], $2::text[]) with ordinality as w(subscription, lane, item)
