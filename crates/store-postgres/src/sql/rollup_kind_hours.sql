-- All scopes of a kind: a range of the primary key for each hour.
select r.at, r.scope, r.counts
from generate_series($1::int8, $2::int8, 3600000) as wanted(at)
cross join lateral (
    select at, scope, counts from rollup_hour
    where at = wanted.at and scope >= $3::text collate "C" and scope < $4::text collate "C"
    offset 0
) as r
