-- A dead letter that blocks its lane is cancelled after all.
with freed as (
    delete from lane_block where delivery = $2
),
cancelled as (
    update delivery_done set state = $3::int2, ended_at = $4::int8, revival = revival + 1
    where tenant = $1 and id = $2
    returning tenant
)
insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
select tenant, current_setting('posthorn.slot')::int4, 0, 0, 0, -count(*), count(*)
from cancelled
group by tenant
on conflict (tenant, slot) do update
set dead = t.dead + excluded.dead, cancelled = t.cancelled + excluded.cancelled
