insert into api_key (
    id, tenant, description, scopes, hash, created_at, expires_at, revoked_at, version, rate_limit
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict do nothing
