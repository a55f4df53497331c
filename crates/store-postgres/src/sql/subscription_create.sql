insert into subscription (
    id, tenant, description, destination, filter, profile, overrides, secrets, status,
    created_at, updated_at, version
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
on conflict do nothing
