-- Ended deliveries of a tenant, by id, held until the commit; whether they block their lane, and
-- when their subscription was deleted. Plan: primary keys, partitions pruned.
select
    d.id, d.event, d.subscription, d.tenant, d.lane, d.seq, d.state,
    9223372036854775807 as due_at, d.attempts, d.budget_base, d.budget_began, d.revival, d.created_at,
    d.ended_at, d.outcome,
    (select true from lane_block b where b.delivery = d.id limit 1) is true as blocks,
    (select e.deliver_at from event e where e.tenant = d.tenant and e.id = d.event limit 1)
        as deliver_at,
    null::text as enters,
    (select s.deleted_at from subscription s where s.id = d.subscription limit 1) as "left"
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select * from delivery_done where tenant = $1 and id = wanted.id limit 1 for update
) as d
order by d.id
