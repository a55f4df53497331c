-- Sorted, so that two batches wait for each other instead of deadlocking. Tells who was born.
insert into push_agent (id, node, connected_at, created_at, seen_at)
select agent, node, connected_at, at, greatest(connected_at, at)
from unnest($1::uuid[], $2::text[], $3::int8[], $4::int8[]) as i(agent, node, connected_at, at)
order by agent
on conflict (id) do nothing
returning id
