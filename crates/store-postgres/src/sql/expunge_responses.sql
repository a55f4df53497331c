-- Removes what receivers answered to all attempts of some deliveries. Plan: attempt_delivery, partitions pruned.
update attempt set response = '', detail = '', response_expunged_at = $2::int8
where delivery = any($1::uuid[]) and response_expunged_at is null
returning delivery
