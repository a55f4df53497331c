-- Cancels live deliveries; by hand, which raises their revival. Plan: primary key probes.
with gone as (
    delete from delivery_live where id = any($1::uuid[]) returning *
),
-- One that was cancelled by hand belongs to its lane, should it come back.
outside as (
    delete from scheduled where delivery = any(array(select id from gone))
    returning delivery, lane
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select tenant, current_setting('posthorn.slot')::int4, 0, -count(*), 0, 0, count(*)
    from gone
    group by tenant
    on conflict (tenant, slot) do update
    set pending = t.pending + excluded.pending, cancelled = t.cancelled + excluded.cancelled
)
insert into delivery_done (
    id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
    budget_base, state, lane, revival, outcome
)
select
    id, event, subscription, tenant, seq, budget_began, created_at, $3::int8, attempts,
    budget_base, $2::int2,
    case
        when lane is null and $4::int4 > 0
        then (select o.lane from outside o where o.delivery = gone.id limit 1)
        else lane
    end,
    revival + $4::int4, outcome
from gone
