-- Deliveries of events of the past, last in their lanes. The caller holds the events, the tenant's lock
-- (shared) and the locks of the lanes. Each has one attempt if $11 says so. Written as accept.sql, for the same reasons.
with placed as materialized (
    select wanted.*, nextval('delivery_seq') as seq
    from (
        select d.*
        from unnest(
            $2::uuid[], $3::uuid[], $4::uuid[], $5::int2[], $6::int2[], $7::text[], $8::int8[],
            $9::int8[], $10::int8[]
        ) with ordinality as d(
            id, event, subscription, shard, lane_slot, lane, created_at, due_at, budget_began, place
        )
        order by d.place
    ) as wanted
),
head as materialized (
    select f.place
    from (
        select distinct on (subscription, lane) place, subscription, lane
        from placed
        where lane is not null
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
),
live_new as (
    insert into delivery_live (
        id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
        budget_base, shard, state, lane_slot, lane
    )
    select
        id, event, subscription, $1, seq,
        case
            when lane is not null and ((place in (select place from head)) is not true)
            then 9223372036854775807 else due_at
        end,
        budget_began, created_at, 0, case when $11::bool then -1 else 0 end, shard, 0, lane_slot,
        lane
    from placed
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select $1, current_setting('posthorn.slot')::int4, 0, count(*), 0, 0, 0
    from placed
    on conflict (tenant, slot) do update
    set pending = t.pending + excluded.pending
)
update event e
set deliveries = e.deliveries || array(
    select p.id from placed p where p.event = e.id order by p.place
)
where e.tenant = $1 and e.id = any($3::uuid[])
