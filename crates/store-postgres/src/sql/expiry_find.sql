-- Events whose retention is over, longest first, and when it was; null for one that is gone. Plan: a range of
-- expiry_time, primary key probes, partitions pruned.
select x.tenant, x.event, e.expired
from (
    select tenant, event, at from expiry where at <= $1::int8 order by at limit $2::int8
) as x
left join lateral (
    select coalesce(deliver_at, accepted_at) + retention as expired
    from event where tenant = x.tenant and id = x.event limit 1
) as e on true
