-- Removes what attempts of some deliveries had sent. Plan: attempt_delivery, partitions pruned.
update attempt set request = null
where delivery = any($1::uuid[]) and request is not null
