-- Plan: the whole of redrive_running, which holds nothing else.
select id, tenant, filter, per_second, state, total, moved, created_at, finished_at
from redrive where state = 0
order by id
limit $1::int8
