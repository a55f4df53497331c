-- Removes what the receiver answered to one attempt, and late ones of its number; says how many of them there are, and of
-- how many something was removed. The caller has checked whose delivery it is. Plan: attempt_delivery, partitions pruned.
with cleared as (
    update attempt set response = '', detail = '', response_expunged_at = $3::int8
    where delivery = $1 and number = $2::int4 and response_expunged_at is null
    returning 1
)
select
    (select count(*) from attempt where delivery = $1 and number = $2::int4),
    (select count(*) from cleared)
