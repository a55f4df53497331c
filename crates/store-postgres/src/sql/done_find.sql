-- Ended deliveries of a tenant, by id, held until the commit; whether they block their lane, and
-- whether their subscription was deleted. Plan: primary keys, partitions pruned.
select
    d.id, d.event, d.subscription, d.tenant, d.lane, d.seq, d.state,
    9223372036854775807 as due_at, d.attempts, d.budget_base, d.budget_began, d.created_at,
    d.ended_at,
    exists (select from lane_block b where b.delivery = d.id) as blocks,
    exists (
        select from subscription s where s.id = d.subscription and s.deleted_at is not null
    ) as gone
from unnest($2::uuid[]) as wanted(id)
join delivery_done d on d.tenant = $1 and d.id = wanted.id
order by d.id
for update of d
