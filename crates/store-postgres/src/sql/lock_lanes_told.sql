-- The lanes of live deliveries and some more, by slot, in ascending order. Plan: one probe of the primary key
-- for each delivery.
select pg_advisory_xact_lock($1::int4, slot) from (
    select distinct wanted.slot
    from (
        select l.lane_slot::int4 as slot
        from unnest($2::uuid[]) as wanted(id)
        cross join lateral (
            select lane_slot from delivery_live d where d.id = wanted.id limit 1
        ) as l
        union all
        select more.slot from unnest($3::int4[]) as more(slot)
    ) as wanted
    where wanted.slot is not null
    order by 1
) as slots
