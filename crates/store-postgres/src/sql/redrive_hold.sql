-- The redrive that is about to advance, held until the commit.
select id, tenant, filter, per_second, state, total, moved, created_at, finished_at, cursor
from redrive where id = $1 for update
