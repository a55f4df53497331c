-- Plan: the primary key.
select key, status, body from kept_answer where key = $1 and status is not null
