-- Looks again later at events that cannot go yet; what is gone is forgotten. Plan: primary key probes.
with gone as (
    delete from expiry
    where (tenant, event) in (
        select w.tenant, w.event from unnest($1::uuid[], $2::uuid[], $3::int8[])
            as w(tenant, event, at)
        where w.at is null
    )
)
update expiry x set at = w.at
from unnest($1::uuid[], $2::uuid[], $3::int8[]) as w(tenant, event, at)
where w.at is not null and x.tenant = w.tenant and x.event = w.event
