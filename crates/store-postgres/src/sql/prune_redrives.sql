-- Plan: a range of redrive_ended.
delete from redrive where id in (
    select id from redrive where state <> 0 and finished_at < $1::int8 order by finished_at
    limit $2::int8
)
