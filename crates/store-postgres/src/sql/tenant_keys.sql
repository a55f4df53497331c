-- Removes idempotency keys of a tenant that is being deleted. Plan: ranges of the primary key.
delete from idempotency
where tenant = $1 and key = any(array(
    select key from idempotency
    where tenant = $1
    order by key
    limit $2::int8
))
