-- Removes redrives of a tenant that is being deleted, and all jobs but the one that deletes it.
with redrive_old as (
    delete from redrive where id in (select id from redrive where tenant = $1 limit $3::int8)
    returning id
),
job_old as (
    delete from job where id in (
        select id from job where tenant = $1 and id <> $2::uuid limit $3::int8
    )
    returning id
),
expiry_old as (
    delete from expiry where tenant = $1
)
select (select count(*) from redrive_old) + (select count(*) from job_old) as removed
