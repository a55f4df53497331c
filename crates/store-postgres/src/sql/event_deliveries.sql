-- Plan: primary key, partitions pruned.
select deliveries from event where tenant = $1 and id = $2
