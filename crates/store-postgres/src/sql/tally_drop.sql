-- Takes what a day holds out of the tally, before it is dropped. Whole partitions: nobody else reads them.
insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
select
    tenant, current_setting('posthorn.slot')::int4, -sum(events), 0, -sum(delivered), -sum(dead),
    -sum(cancelled)
from (
    select tenant, count(*) as events, 0 as delivered, 0 as dead, 0 as cancelled
    from {event} group by tenant
    union all
    select
        tenant, 0,
        count(*) filter (where state = 2),
        count(*) filter (where state between 10 and 19),
        count(*) filter (where state >= 20)
    from {done} group by tenant
) as held
group by tenant
on conflict (tenant, slot) do update
set events = t.events + excluded.events, pending = t.pending + excluded.pending,
    delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
    cancelled = t.cancelled + excluded.cancelled
