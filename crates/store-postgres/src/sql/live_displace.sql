-- Heads of lanes have to wait for those that come before them. The caller holds the locks of the lanes.
-- Plan: primary key probes.
update delivery_live
set state = 0, held_until = due_at, due_at = 9223372036854775807, revival = revival + 1
where id = any($1::uuid[])
returning id, subscription, revival
