-- Plan: the primary key.
update kept_answer set holder = null, until = null, status = $2::int4, body = $3
where key = $1 and status is null
