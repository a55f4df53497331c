-- Removes the payloads of events. The caller holds them. Plan: primary key probes, partitions pruned.
update event set payload = '', expunged_at = $3::int8
where tenant = $1 and id = any($2::uuid[]) and expunged_at is null
returning id
