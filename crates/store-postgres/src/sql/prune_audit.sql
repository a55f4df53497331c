-- Plan: the beginning of the primary key.
delete from audit where id = any(array(
    select id from audit where id < $1::uuid order by id limit $2::int8
))
