-- Plan: a scan of the agents, and one of an index of the messages, both up to the limit.
select node, count(*)::int8 as number, null::int8 as messages
from (select node from push_agent limit $1::int8) as looked_at
group by node
union all
select null, 0, (select count(*)::int8 from (select 1 from push_message limit $1::int8) as kept)
