-- Deliveries of a tenant by id, as readers see them: those of a deleted subscription are cancelled
-- already. Plan: primary keys, partitions pruned.
select
    l.id, l.event, l.subscription, l.tenant, l.lane, l.seq,
    case when g.id is null then l.state else 20::int2 end as state,
    case when g.id is null then l.due_at else 9223372036854775807 end as due_at,
    l.attempts, l.budget_base, l.budget_began, l.revival, l.created_at, g.deleted_at as ended_at,
    l.outcome
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select * from delivery_live where id = wanted.id and tenant = $1 limit 1
) as l
left join subscription_gone g on g.id = l.subscription
union all
select
    d.id, d.event, d.subscription, d.tenant, d.lane, d.seq, d.state, 9223372036854775807,
    d.attempts, d.budget_base, d.budget_began, d.revival, d.created_at, d.ended_at,
    d.outcome
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select * from delivery_done where tenant = $1 and id = wanted.id limit 1
) as d
