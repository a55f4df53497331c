-- Waits for nobody. Plan: push_message_expiry.
delete from push_message where ctid = any(array(
    select ctid from push_message where expires_at <= $1::int8
    order by expires_at limit $2::int8
    for update skip locked
))
