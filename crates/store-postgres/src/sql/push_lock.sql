-- In order of id, so that two batches wait for each other instead of deadlocking. Statements behind
-- this one see everything the former holders committed. Plan: push_agent_pkey.
select a.id from push_agent a where a.id = any($1::uuid[]) order by a.id for no key update
