-- A look at the primary key for each hour.
select r.at, r.scope, r.counts
from generate_series($2::int8, $3::int8, 3600000) as wanted(at)
cross join lateral (
    select at, scope, counts from rollup_hour where at = wanted.at and scope = $1::text limit 1
) as r
