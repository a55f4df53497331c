-- Jobs of a tenant between two ids, without them. Plan: a range of job_tenant.
select
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem,
    cursor
from job where tenant = $1 and id > $2 and id < $3
order by id asc
limit $4::int8
