update certificate set revoked_at = $3, version = $4 where tenant = $1 and id = $2
