-- Ended deliveries come back with a fresh budget, of one attempt if $7 says so. Plan: primary key probes.
with wanted as materialized (
    select * from unnest($2::uuid[], $3::int2[], $4::int2[], $5::bool[])
        as w(id, shard, lane_slot, parked)
),
freed as (
    delete from lane_block where delivery = any($2::uuid[])
),
back as (
    delete from delivery_done where tenant = $1 and id = any($2::uuid[]) returning *
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        tenant, current_setting('posthorn.slot')::int4, 0, count(*),
        -count(*) filter (where state = 2),
        -count(*) filter (where state between 10 and 19),
        -count(*) filter (where state >= 20)
    from back
    group by tenant
    on conflict (tenant, slot) do update
    set events = t.events + excluded.events, pending = t.pending + excluded.pending,
        delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
        cancelled = t.cancelled + excluded.cancelled
)
insert into delivery_live (
    id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
    budget_base, shard, state, lane_slot, lane, revival, outcome
)
select
    b.id, b.event, b.subscription, b.tenant, b.seq,
    case when w.parked then 9223372036854775807 else $6::int8 end,
    $6::int8, b.created_at, b.attempts,
    case when $7::bool then -1 - b.attempts else b.attempts end, w.shard, 0, w.lane_slot, b.lane, b.revival + 1,
    b.outcome
from back b
cross join lateral (
    select * from wanted where wanted.id = b.id limit 1
) as w
