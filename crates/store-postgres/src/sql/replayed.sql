-- For deliveries that are made later than their events. Seldom changes anything: both are rounded up.
insert into replayed as r (tenant, later, last)
values ($1::uuid, $2::int8, $3::int8)
on conflict (tenant) do update
set later = greatest(r.later, excluded.later), last = greatest(r.last, excluded.last)
where r.later < excluded.later or r.last < excluded.last
