-- One is enough to know that the realm is not empty. Plan: entry_in_realm.
select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry
where realm = $1
limit 1
