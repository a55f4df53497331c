-- Where the log ends: before the oldest transaction that may still write.
select pg_snapshot_xmin(pg_current_snapshot())::text::int8 as tx
