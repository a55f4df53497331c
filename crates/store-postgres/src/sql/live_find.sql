-- One live delivery of a tenant, and when its subscription was deleted. Plan: primary keys.
select
    l.id, l.event, l.subscription, l.tenant, l.lane, l.seq, l.state, l.due_at, l.attempts,
    l.budget_base, l.budget_began, l.revival, l.created_at, null::int8 as ended_at, l.outcome,
    false as blocks,
    (select e.deliver_at from event e where e.tenant = l.tenant and e.id = l.event limit 1)
        as deliver_at,
    (select s.lane from scheduled s where s.delivery = l.id limit 1) as enters,
    (select g.deleted_at from subscription_gone g where g.id = l.subscription) as "left"
from delivery_live l
where l.id = $1 and l.tenant = $2
for update
