-- Plan: the whole of job_running, which holds nothing else; then sorted, by what is first of each tenant.
select
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem,
    cursor
from (
    select j.*, row_number() over (partition by tenant order by id) as turn
    from job j where state = 0
) as running
order by turn, id
limit $1::int8
