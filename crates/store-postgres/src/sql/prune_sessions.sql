-- Plan: the beginning of page_session_expiry.
delete from page_session where id = any(array(
    select id from page_session where expires_at < $1::int8 order by expires_at, id limit $2::int8
))
