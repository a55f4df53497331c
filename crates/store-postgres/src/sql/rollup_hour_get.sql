-- A look at the primary key for each.
select h.at, h.scope, h.counts
from unnest($1::int8[], $2::text[]) as u(at, scope)
cross join lateral (
    select at, scope, counts from rollup_hour where at = u.at and scope = u.scope limit 1
) as h
