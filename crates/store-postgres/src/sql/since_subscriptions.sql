select
    id, tenant, description, destination, filter, profile, overrides, secrets, status,
    created_at, updated_at, version, deleted_at, name, labels, stops
from subscription where version > $1 order by id
