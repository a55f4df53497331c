-- Those that were lost are forgotten a day later, with a heartbeat. A node of an older version does not say when it was
-- seen: its sign of life ran out at the latest then.
select
    id, catalog, expires_at > clock_timestamp() as alive, version,
    greatest(
        0,
        extract(epoch from clock_timestamp() - coalesce(seen_at, least(expires_at, clock_timestamp()))) * 1000
    )::int8 as ago
from node
order by id
