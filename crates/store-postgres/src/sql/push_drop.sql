-- The caller holds the agents.
with message as (delete from push_message where agent = any($1::uuid[])),
channel as (delete from push_channel where agent = any($1::uuid[]))
delete from push_agent where id = any($1::uuid[]) returning id
