-- Removes one delivery of a tenant, wherever it is, and its attempts; its event no longer lists it.
-- The caller holds its row and the lock of its lane. Plan: primary keys and attempt_delivery,
-- partitions pruned.
with live_old as (
    delete from delivery_live where id = $2 and tenant = $1 returning state
),
done_old as (
    delete from delivery_done where tenant = $1 and id = $2 returning state
),
outside as (
    delete from scheduled where delivery = $2
),
freed as (
    delete from lane_block where delivery = $2
),
attempt_old as (
    delete from attempt where delivery = $2
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        $1, current_setting('posthorn.slot')::int4, 0,
        -count(*) filter (where state < 2),
        -count(*) filter (where state = 2),
        -count(*) filter (where state between 10 and 19),
        -count(*) filter (where state >= 20)
    from (select state from live_old union all select state from done_old) as old
    on conflict (tenant, slot) do update
    set events = t.events + excluded.events, pending = t.pending + excluded.pending,
        delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
        cancelled = t.cancelled + excluded.cancelled
)
update event set deliveries = array_remove(deliveries, $2) where tenant = $1 and id = $3
