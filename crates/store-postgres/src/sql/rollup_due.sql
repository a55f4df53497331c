-- The next rows that are to be added to their hours: a range of the primary key.
select at, scope, node, counts
from rollup
where (at, scope, node) > ($1::int8, $2::text collate "C", $3::uuid) and at < $4::int8
order by at, scope, node
limit $5::int8
