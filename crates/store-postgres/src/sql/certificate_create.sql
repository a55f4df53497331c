insert into certificate (
    tenant, id, kind, description, owner, host, scopes, thumbprint, subject, pem, sealed_key,
    not_before, not_after, created_at, updated_at, revoked_at, version
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
on conflict do nothing
