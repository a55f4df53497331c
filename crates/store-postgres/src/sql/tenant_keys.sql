-- Removes idempotency keys of a tenant that is being deleted. Plan: a range of the primary key.
delete from idempotency i
using (
    select tenant, key from idempotency
    where tenant = $1
    order by key
    limit $2::int8
    for update
) as old
where i.tenant = old.tenant and i.key = old.key
