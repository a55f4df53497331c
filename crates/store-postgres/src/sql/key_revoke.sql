update api_key set revoked_at = $2, version = $3 where id = $1
