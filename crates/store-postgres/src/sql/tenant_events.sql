-- Removes a few events of a tenant that is being deleted, with everything that belongs to them, in whatever state it
-- is. Rows are held in the order of `lock`: ended deliveries, live ones, events, each by id. Whoever ends a live one at
-- the same moment either comes before, and then its ended row is not seen here and the event stays for the next
-- bite, or finds nothing. Plan: primary keys and attempt_delivery, partitions pruned by the ids.
with candidate as materialized (
    select id, deliveries
    from (
        select id, deliveries, sum(cardinality(deliveries) + 1) over (order by id) as total
        from (
            select id, deliveries from event
            where tenant = $1
            order by id
            limit $2::int8
        ) as first
    ) as counted
    -- So many rows, and at least one event.
    where total - cardinality(deliveries) - 1 < $2::int8
    order by id
),
listed as materialized (
    select c.id as event, l.id
    from candidate c cross join lateral unnest(c.deliveries) as l(id)
    order by l.id
),
done as materialized (
    select d.id, d.state
    from listed
    cross join lateral (
        select id, state from delivery_done
        where tenant = $1 and id = listed.id
        limit 1
        for update
    ) as d
),
live as materialized (
    select d.id, d.state
    from listed
    cross join lateral (
        select id, state from delivery_live
        where id = listed.id
        limit 1
        for update
    ) as d
),
found as materialized (
    select l.event, count(*) as number
    from listed l
    where l.id in (select id from done union all select id from live)
    group by l.event
),
doomed as materialized (
    select e.id, e.deliveries
    from (
        select c.id, c.deliveries from candidate c
        left join found f on f.event = c.id
        where cardinality(c.deliveries) = coalesce(f.number, 0)
        order by c.id
    ) as whole
    cross join lateral (
        select id, deliveries from event
        where tenant = $1 and id = whole.id and deliveries = whole.deliveries
        limit 1
        for update
    ) as e
),
gone as materialized (
    select l.id from doomed d cross join lateral unnest(d.deliveries) as l(id)
),
-- By lists and not by joins: for a join the server may choose to read a whole index, as long as it believes the
-- table to be small.
live_old as (
    delete from delivery_live where id = any(array(select id from gone)) returning state
),
done_old as (
    delete from delivery_done
    where tenant = $1 and id = any(array(select id from gone))
    returning state
),
outside as (
    delete from scheduled where delivery = any(array(select id from gone))
),
freed as (
    delete from lane_block where delivery = any(array(select id from gone))
),
attempt_old as (
    delete from attempt where delivery = any(array(select id from gone))
),
expiry_old as (
    delete from expiry where tenant = $1 and event = any(array(select id from doomed))
),
event_old as (
    delete from event where tenant = $1 and id = any(array(select id from doomed))
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        $1::uuid, current_setting('posthorn.slot')::int4, -sum(events),
        -count(*) filter (where state < 2),
        -count(*) filter (where state = 2),
        -count(*) filter (where state between 10 and 19),
        -count(*) filter (where state >= 20)
    from (
        select 1 as events, null::int2 as state from doomed
        union all
        select 0, state from live_old
        union all
        select 0, state from done_old
    ) as old
    having count(*) > 0
    on conflict (tenant, slot) do update
    set events = t.events + excluded.events, pending = t.pending + excluded.pending,
        delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
        cancelled = t.cancelled + excluded.cancelled
)
select
    (select count(*) from candidate) as seen,
    (select count(*) from doomed) + (select count(*) from gone) as removed
