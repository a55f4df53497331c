update certificate set
    description = $3, owner = $4, host = $5, scopes = $6, thumbprint = $7, subject = $8, pem = $9,
    sealed_key = $10, not_before = $11, not_after = $12, updated_at = $13, version = $14
where tenant = $1 and id = $2
