-- Ended deliveries come back with a fresh budget. Plan: primary key probes.
with wanted as materialized (
    select * from unnest($2::uuid[], $3::int2[], $4::int2[], $5::bool[])
        as w(id, shard, lane_slot, parked)
),
freed as (
    delete from lane_block where delivery = any($2::uuid[])
),
back as (
    delete from delivery_done where tenant = $1 and id = any($2::uuid[]) returning *
)
insert into delivery_live (
    id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
    budget_base, shard, state, lane_slot, lane, revival
)
select
    b.id, b.event, b.subscription, b.tenant, b.seq,
    case when w.parked then 9223372036854775807 else $6::int8 end,
    $6::int8, b.created_at, b.attempts, b.attempts, w.shard, 0, w.lane_slot, b.lane, b.revival + 1
from back b
cross join lateral (
    select * from wanted where wanted.id = b.id limit 1
) as w
