-- Ends live deliveries; by hand, which raises their revival. Plan: primary key probes.
with gone as (
    delete from delivery_live where id = any($1::uuid[]) returning *
)
insert into delivery_done (
    id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
    budget_base, state, lane, revival
)
select
    id, event, subscription, tenant, seq, budget_began, created_at, $3::int8, attempts,
    budget_base, $2::int2, lane, revival + $4::int4
from gone
