select
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem,
    cursor
from job where tenant = $1 and id = $2
