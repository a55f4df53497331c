-- What was removed for good, and when.
alter table event add column expunged_at bigint;
alter table attempt add column response_expunged_at bigint;
-- Those that redrives pass over. Few, however long the history is.
create index event_expunged on event (tenant, id) where expunged_at is not null;
