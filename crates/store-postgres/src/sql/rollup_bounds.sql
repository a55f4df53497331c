-- The first and the last moments there are.
select
    (select at from rollup order by at, scope, node limit 1) as first_minute,
    (select at from rollup order by at desc, scope desc, node desc limit 1) as last_minute,
    (select at from rollup_hour order by at, scope limit 1) as first_hour,
    (select at from rollup_hour order by at desc, scope desc limit 1) as last_hour,
    f.at as at, f.scope as scope, f.node as node
from folded_rollup f
