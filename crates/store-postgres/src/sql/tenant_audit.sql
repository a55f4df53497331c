-- Removes lines of a tenant that is being deleted but the one that says so. Plan: a range of audit_tenant.
delete from audit where id = any(array(
    select id from audit
    where tenant = $1::uuid and tenant >= $1::uuid and tenant <= $1::uuid and action <> $2::text
    order by id
    limit $3::int8
))
