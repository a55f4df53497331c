-- Plan: the primary key.
update kept_answer set holder = null, until = null
where key = $1 and holder = $2::uuid and status is null
