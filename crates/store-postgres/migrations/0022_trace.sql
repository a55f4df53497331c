-- The trace that an event belongs to: 16 bytes of the trace, 8 of the step in it, one of flags. Null for events
-- that belong to none.
alter table event add column trace bytea;
