-- A look at the primary key for each minute; `offset` keeps the server from doing it the other way round.
select r.at, r.scope, r.counts
from generate_series($2::int8, $3::int8, 60000) as wanted(at)
cross join lateral (
    select at, scope, node, counts from rollup
    where at = wanted.at and scope = $1::text
    offset 0
) as r
where (r.at, r.scope, r.node) > ($4::int8, $5::text collate "C", $6::uuid)
