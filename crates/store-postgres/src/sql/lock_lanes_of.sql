-- The lanes of live deliveries, by slot, in ascending order. Plan: one probe of the primary key for
-- each delivery.
select pg_advisory_xact_lock($1::int4, slot) from (
    select distinct l.lane_slot::int4 as slot
    from unnest($2::uuid[]) as wanted(id)
    cross join lateral (
        select lane_slot from delivery_live d where d.id = wanted.id limit 1
    ) as l
    where l.lane_slot is not null
    order by 1
) as slots
