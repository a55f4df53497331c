-- All scopes of a kind: a range of the primary key for each minute.
select r.at, r.scope, r.counts
from generate_series($1::int8, $2::int8, 60000) as wanted(at)
cross join lateral (
    select at, scope, node, counts from rollup
    where at = wanted.at and scope >= $3::text collate "C" and scope < $4::text collate "C"
    offset 0
) as r
where (r.at, r.scope, r.node) > ($5::int8, $6::text collate "C", $7::uuid)
