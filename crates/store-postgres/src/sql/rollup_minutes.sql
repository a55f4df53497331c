-- A look at the primary key for each minute.
select r.at, r.scope, r.counts
from generate_series($2::int8, $3::int8, 60000) as wanted(at)
cross join lateral (
    select at, scope, node, counts from rollup where at = wanted.at and scope = $1::text
) as r
where (r.at, r.scope, r.node) > ($4::int8, $5::text collate "C", $6::uuid)
