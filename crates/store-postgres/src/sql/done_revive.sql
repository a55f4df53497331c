-- Ended deliveries come back with a fresh budget. Plan: primary key probes.
with wanted as materialized (
    select * from unnest($2::uuid[], $3::int2[], $4::int2[], $5::bool[])
        as w(id, shard, lane_slot, parked)
),
freed as (
    delete from lane_block where delivery = any($2::uuid[])
),
back as (
    delete from delivery_done d using wanted w
    where d.tenant = $1 and d.id = w.id
    returning d.*, w.shard, w.lane_slot, w.parked
)
insert into delivery_live (
    id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
    budget_base, shard, state, lane_slot, lane
)
select
    id, event, subscription, tenant, seq,
    case when parked then 9223372036854775807 else $6::int8 end,
    $6::int8, created_at, attempts, attempts, shard, 0, lane_slot, lane
from back
