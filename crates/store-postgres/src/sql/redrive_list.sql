select id, tenant, filter, per_second, state, total, moved, created_at, finished_at
from redrive where $1::uuid is null or tenant = $1
order by id desc
limit $2::int8
