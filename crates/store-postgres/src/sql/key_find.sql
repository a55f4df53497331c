select tenant, revoked_at, expires_at from api_key where id = $1 for update
