-- Operator keys are few, and this is asked when one is revoked, and once at the start of a server. Plan:
-- entry_of_operators.
select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry
where kind = 'key' and tenant is null
