-- All that a tenant has, which its quota bounds. Plan: a range of page_session_tenant.
select count(*) from page_session
where tenant = $1::uuid and tenant >= $1::uuid and tenant <= $1::uuid and expires_at > $2::int8
