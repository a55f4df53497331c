-- Plan: idempotency_accepted.
delete from idempotency where ctid = any(array(
    select ctid from idempotency where accepted_at < $1::int8 order by accepted_at limit $2::int8
))
