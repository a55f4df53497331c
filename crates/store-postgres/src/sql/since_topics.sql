select tenant, name, description, attributes, created_at, removed, labels
from topic where version > $1 order by tenant, name
