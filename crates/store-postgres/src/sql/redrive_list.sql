-- Plan: redrive_tenant backwards, from `before` on.
select id, tenant, filter, per_second, state, total, moved, created_at, finished_at
from redrive where tenant = $1 and id < $2
order by id desc
limit $3::int8
