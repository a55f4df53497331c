-- For each lane: who is at its head, the dead letter that blocks it, and the first that is parked. Plan:
-- probes of delivery_live_head, of the primary key of lane_block and of delivery_live_parked.
select
    w.item::int4 as item, h.id as head, h.seq, h.state, h.due_at,
    (select b.delivery from lane_block b where b.subscription = w.subscription and b.lane = w.lane)
        as blocker,
    (
        select p.seq from delivery_live p
        where p.subscription = w.subscription and p.lane = w.lane
          and p.due_at = 9223372036854775807
        order by p.seq
        limit 1
    ) as parked
from unnest($1::uuid[], $2::text[]) with ordinality as w(subscription, lane, item)
left join lateral (
    select l.id, l.seq, l.state, l.due_at from delivery_live l
    where l.subscription = w.subscription and l.lane = w.lane and l.due_at < 9223372036854775807
    limit 1
) as h on true
