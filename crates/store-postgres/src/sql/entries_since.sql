-- Plan: a range of entry_version.
select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry
where version > $1
order by kind, key
