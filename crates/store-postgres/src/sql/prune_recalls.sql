-- Plan: a range of recall_at.
delete from recall where no in (
    select no from recall where at < $1::int8 order by at limit $2::int8
)
