-- Deliveries enter their lanes, in the order given, behind whoever is there. The caller holds their rows and the
-- locks of the lanes. Written as accept.sql, for the same reasons. None of $1 is looked at again.
with dropped as (
    delete from scheduled where delivery = any($1::uuid[])
),
placed as materialized (
    select wanted.*, nextval('delivery_seq') as seq
    from (
        select d.*
        from unnest($2::uuid[], $3::uuid[], $4::int2[], $5::text[], $7::int8[])
            with ordinality as d(id, subscription, lane_slot, lane, at, place)
        order by d.place
    ) as wanted
),
-- The first of each lane becomes its head, if the lane is free.
head as materialized (
    select f.id
    from (
        select distinct on (subscription, lane) id, subscription, lane
        from placed
        order by subscription, lane, place
    ) as f
    where (
        select true from delivery_live l
        where l.subscription = f.subscription and l.lane = f.lane
          and l.due_at < 9223372036854775807
        limit 1
    ) is null and (
        select true from lane_block b where b.subscription = f.subscription and b.lane = f.lane
        limit 1
    ) is null
)
update delivery_live l
-- Whoever promotes one that has to wait may have a clock that is behind.
set (seq, lane_slot, lane, held_until) = (
        select
            p.seq, p.lane_slot, p.lane,
            case when (p.id in (select id from head)) is true then null else p.at end
        from placed p where p.id = l.id limit 1
    ),
    due_at = case
        when (l.id in (select id from head)) is true then $6::int8 else 9223372036854775807
    end
where l.id = any($2::uuid[])
