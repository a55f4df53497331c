-- A range of the primary key.
delete from rollup_hour where ctid = any (array(
    select ctid from rollup_hour where at < $1::int8 order by at, scope limit $2::int8
))
