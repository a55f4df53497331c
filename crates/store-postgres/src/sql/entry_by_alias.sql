-- Plan: entry_alias.
select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry
where kind = $1 and alias = $2
