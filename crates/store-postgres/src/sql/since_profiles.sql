select tenant, name, base, policy, updated_at, removed
from profile where version > $1 order by tenant, name
