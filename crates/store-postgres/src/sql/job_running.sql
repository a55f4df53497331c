-- Plan: the whole of job_running, which holds nothing else.
select
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem,
    cursor
from job where state = 0
order by id
limit $1::int8
