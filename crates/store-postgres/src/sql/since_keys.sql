select id, tenant, description, scopes, hash, created_at, expires_at, revoked_at, rate_limit
from api_key where version > $1 order by id
