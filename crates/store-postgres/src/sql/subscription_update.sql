update subscription
set description = $3, destination = $4, filter = $5, profile = $6, overrides = $7, secrets = $8,
    status = $9, updated_at = $10, version = $11, name = $12, labels = $13,
    stops = $14
where tenant = $1 and id = $2 and deleted_at is null
