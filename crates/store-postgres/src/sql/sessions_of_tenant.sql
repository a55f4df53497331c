-- Plan: a range of page_session_tenant.
delete from page_session where id = any(array(
    select id from page_session
    where tenant = $1::uuid and tenant >= $1::uuid and tenant <= $1::uuid
    order by id
    limit $2::int8
))
