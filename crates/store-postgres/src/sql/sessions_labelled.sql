-- Plan: a range of page_session_label.
delete from page_session where id = any(array(
    select id from page_session
    where tenant = $1::uuid and label = $2::text and label >= $2::text and label <= $2::text
))
