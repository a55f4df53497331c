-- Plan: a range of page_session_key.
delete from page_session where id = any(array(
    select id from page_session
    where key = $1::uuid and key >= $1::uuid and key <= $1::uuid
))
