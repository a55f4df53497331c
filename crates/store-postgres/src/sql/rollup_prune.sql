-- A range of the primary key. All before the last that was added to its hour were.
delete from rollup where ctid = any (array(
    select ctid from rollup
    where at < $1::int8 and at < (select at from folded_rollup)
    order by at, scope, node
    limit $2::int8
))
