-- Taken in the order given, which callers sort.
select pg_advisory_xact_lock_shared($1::int4, slot) from unnest($2::int4[]) as slot
