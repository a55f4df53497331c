-- Plan: entry_unique.
select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry
where kind = $1 and unique_key = $2
