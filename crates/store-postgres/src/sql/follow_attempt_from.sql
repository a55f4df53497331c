-- The first from a transaction on that is complete, and when it was. Plan: attempt_tx.
select tx, started_at as at
from attempt
where tx >= $1::int8 and tx < pg_snapshot_xmin(pg_current_snapshot())::text::int8 and tx is not null
order by tx
limit 1
