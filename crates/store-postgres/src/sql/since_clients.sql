select tenant, name, sealed_secret, scopes, updated_at, version, removed
from client where version > $1 order by tenant, name
