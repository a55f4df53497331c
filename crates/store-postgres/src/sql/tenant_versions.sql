-- What plans of these tenants must be made on. The caller holds their locks (shared).
select id, version from tenant where id = any($1::uuid[])
