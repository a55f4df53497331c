-- Takes hold of them; waits for nobody. Plan: push_agent_seen.
select id from push_agent where seen_at < $1::int8
order by seen_at limit $2::int8
for update skip locked
