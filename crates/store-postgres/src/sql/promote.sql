-- Makes the first parked delivery of a lane its head, if the lane is free. Plan: the lane indexes.
update delivery_live l
set due_at = greatest($3::int8, l.held_until), held_until = null
where l.id = (
    select p.id from delivery_live p
    where p.subscription = $1 and p.lane = $2 and p.due_at = 9223372036854775807
    order by p.seq
    limit 1
) and not exists (
    select from delivery_live h
    where h.subscription = $1 and h.lane = $2 and h.due_at < 9223372036854775807
) and not exists (
    select from lane_block b where b.subscription = $1 and b.lane = $2
)
returning
    l.id, l.event, l.subscription, l.tenant, l.lane, l.seq, l.state, l.due_at, l.attempts,
    l.budget_base, l.budget_began, l.revival, l.created_at, null::int8 as ended_at,
    l.outcome
