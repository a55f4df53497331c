-- The trace that an event belongs to: 16 bytes of the trace, 8 of the step in it, one of flags. Null for events
-- that belong to none, which costs a byte and no page.
alter table event add column trace blob;
