-- Removes what a tenant that is being deleted has in the catalog, but for the tenant itself. Plan: entry_of_tenant.
with old as materialized (
    select kind, key from entry
    where tenant = $1 and kind <> 'tenant'
    order by kind, key
    limit $2::int8
)
delete from entry e using old where e.kind = old.kind and e.key = old.key
returning e.kind, e.key
