select id, tenant, filter, per_second, state, total, moved, created_at, finished_at
from redrive where tenant = $1 and id = $2
