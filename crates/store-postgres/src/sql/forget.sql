-- Removes one delivery of a tenant, wherever it is, and its attempts; its event no longer lists it.
-- The caller holds its row and the lock of its lane. Plan: primary keys and attempt_delivery,
-- partitions pruned.
with live_old as (
    delete from delivery_live where id = $2 and tenant = $1
),
done_old as (
    delete from delivery_done where tenant = $1 and id = $2
),
freed as (
    delete from lane_block where delivery = $2
),
attempt_old as (
    delete from attempt where delivery = $2
)
update event set deliveries = array_remove(deliveries, $2) where tenant = $1 and id = $3
