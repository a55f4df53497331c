-- Rows of one node, which sends them one after the other. What is late replaces nothing.
insert into rollup as r (at, scope, node, number, counts)
select u.at, u.scope, $3::uuid, $4::int8, u.counts
from unnest($1::int8[], $2::text[], $5::bytea[]) as u(at, scope, counts)
order by u.at, u.scope
on conflict (at, scope, node) do update
set number = excluded.number, counts = excluded.counts where r.number < excluded.number
