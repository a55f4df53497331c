-- The job that is about to advance, held until the commit.
select
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem,
    cursor
from job where id = $1 for update
