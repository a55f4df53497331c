-- Holds deliveries in the order of ids, before several statements that would hold them one statement after the other.
-- Plan: one probe of the primary key for each.
select count(*) as held
from (select u.id from unnest($1::uuid[]) as u(id) order by u.id) as wanted
cross join lateral (
    select true from delivery_live d where d.id = wanted.id limit 1 for update
) as l
