-- Whether a tenant has a delivery, wherever it is, by one snapshot: one that is just being moved is in
-- one place or the other. Plan: primary keys, partitions pruned.
select exists (select from delivery_live where id = $1 and tenant = $2)
    or exists (select from delivery_done where tenant = $2 and id = $1)
