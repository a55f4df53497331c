-- Plan: a range of job_ended.
delete from job where id in (
    select id from job where state <> 0 and finished_at < $1::int8 order by finished_at
    limit $2::int8
)
