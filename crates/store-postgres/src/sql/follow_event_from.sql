-- The first from a transaction on that is complete, and when it was. Plan: event_tx.
select tx, accepted_at as at
from event
where tx >= $1::int8 and tx < pg_snapshot_xmin(pg_current_snapshot())::text::int8 and tx is not null
order by tx
limit 1
