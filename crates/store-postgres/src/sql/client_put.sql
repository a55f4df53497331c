insert into client (tenant, name, sealed_secret, scopes, updated_at, version)
values ($1, $2, $3, $4, $5, $6)
on conflict (tenant, name) do update set
    sealed_secret = excluded.sealed_secret,
    scopes = excluded.scopes,
    updated_at = excluded.updated_at,
    version = excluded.version,
    removed = false
