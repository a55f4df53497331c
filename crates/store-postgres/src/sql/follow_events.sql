-- The next events that are complete, whosever they are, and all of their transactions. Plan: event_tx.
select id, tenant, tx
from event
where tx >= $1::int8 and tx < pg_snapshot_xmin(pg_current_snapshot())::text::int8 and tx is not null
order by tx
fetch first ($2::int8) rows with ties
