-- Writes down when deliveries that are stored in the same transaction enter which lanes. Plan: primary key
-- probes.
insert into scheduled (delivery, subscription, at, seq, lane_slot, lane)
select w.id, w.subscription, w.at, l.seq, w.lane_slot, w.lane
from unnest($1::uuid[], $2::uuid[], $3::int8[], $4::int2[], $5::text[])
    as w(id, subscription, at, lane_slot, lane)
cross join lateral (
    select seq from delivery_live d where d.id = w.id limit 1
) as l
