-- Compares the tally with the rows, all of them in one snapshot, and adds what is missing. What others commit
-- meanwhile has changed rows and tally alike, so the difference stays right. Reads whole tables.
with counted as materialized (
    select tenant, count(*) as events, 0::int8 as pending, 0::int8 as delivered, 0::int8 as dead,
        0::int8 as cancelled
    from event group by tenant
    union all
    select tenant, 0, count(*), 0, 0, 0 from delivery_live group by tenant
    union all
    select
        tenant, 0, 0,
        count(*) filter (where state = 2),
        count(*) filter (where state between 10 and 19),
        count(*) filter (where state >= 20)
    from delivery_done group by tenant
    union all
    select tenant, -events, -pending, -delivered, -dead, -cancelled from tally
),
missing as materialized (
    select
        tenant, sum(events) as events, sum(pending) as pending, sum(delivered) as delivered,
        sum(dead) as dead, sum(cancelled) as cancelled
    from counted
    group by tenant
    having sum(events) <> 0 or sum(pending) <> 0 or sum(delivered) <> 0 or sum(dead) <> 0
        or sum(cancelled) <> 0
)
insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
select
    tenant, current_setting('posthorn.slot')::int4, events, pending, delivered, dead, cancelled
from missing
on conflict (tenant, slot) do update
set events = t.events + excluded.events, pending = t.pending + excluded.pending,
    delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
    cancelled = t.cancelled + excluded.cancelled
