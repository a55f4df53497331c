insert into subscription (
    id, tenant, description, destination, filter, profile, overrides, secrets, status,
    created_at, updated_at, version, name, labels, stops
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
on conflict do nothing
