insert into entry (kind, key, tenant, version, unique_key, removed, document, alias, realm)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (kind, key) do update set
    version = excluded.version,
    unique_key = excluded.unique_key,
    removed = excluded.removed,
    document = excluded.document,
    alias = excluded.alias,
    realm = excluded.realm
