-- Stops what else runs for a tenant that is being deleted.
with stopped as (
    update job set state = 2, finished_at = $3::int8
    where tenant = $1 and id <> $2::uuid and state = 0
)
update redrive set state = 2, finished_at = $3::int8
where tenant = $1 and state = 0
