-- Looks at a few events (prune_old, prune_expired) and removes those whose deliveries have all ended
-- long enough ago. The ended rows are held first, so that a retry by hand comes either before (and
-- the event stays) or after (and finds nothing). Then the events are held, for the same reason. Both in the
-- order of ids, as everywhere. A dead letter that blocks its lane stays.
with candidate as materialized (
    {candidate}
),
held as materialized (
    select d.tenant, d.event, d.id, d.state, d.ended_at
    from (
        select c.tenant, listed.id
        from candidate c
        cross join lateral unnest(c.deliveries) as listed(id)
        order by listed.id
    ) as wanted
    cross join lateral (
        select tenant, event, id, state, ended_at from delivery_done
        where tenant = wanted.tenant and id = wanted.id
        limit 1
        for update
    ) as d
),
settled as materialized (
    select h.event, count(*) as number
    from held h
    where h.ended_at < $4::int8
      and (h.state not between 10 and 19 or h.ended_at < $5::int8)
      and not exists (select from lane_block b where b.delivery = h.id)
    group by h.event
),
ended as materialized (
    select c.tenant, c.id, c.deliveries
    from candidate c
    left join settled s on s.event = c.id
    where cardinality(c.deliveries) = coalesce(s.number, 0)
    order by c.tenant, c.id
),
-- One that a job has given another delivery meanwhile stays.
doomed as materialized (
    select e.tenant, e.id, e.deliveries
    from ended
    cross join lateral (
        select tenant, id, deliveries from {partition}
        where tenant = ended.tenant and id = ended.id and deliveries = ended.deliveries
        limit 1
        for update
    ) as e
),
done_old as (
    delete from delivery_done d
    using doomed c cross join lateral unnest(c.deliveries) as listed(id)
    where d.tenant = c.tenant and d.id = listed.id
    returning d.tenant, d.state
),
attempt_old as (
    delete from attempt a
    using doomed c cross join lateral unnest(c.deliveries) as listed(id)
    where a.delivery = listed.id
),
event_old as (
    delete from event e using doomed c where e.tenant = c.tenant and e.id = c.id
),
expiry_old as (
    delete from expiry x using doomed c where x.tenant = c.tenant and x.event = c.id
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        tenant, current_setting('posthorn.slot')::int4, -sum(events), 0,
        -count(*) filter (where state = 2),
        -count(*) filter (where state between 10 and 19),
        -count(*) filter (where state >= 20)
    from (
        select tenant, 1 as events, null::int2 as state from doomed
        union all
        select tenant, 0, state from done_old
    ) as old
    group by tenant
    on conflict (tenant, slot) do update
    set events = t.events + excluded.events, pending = t.pending + excluded.pending,
        delivered = t.delivered + excluded.delivered, dead = t.dead + excluded.dead,
        cancelled = t.cancelled + excluded.cancelled
)
select
    (select count(*) from candidate) as seen,
    (select count(*) from doomed) as removed,
    last.tenant, last.id
from (select 1) as one
left join lateral (
    select tenant, id from candidate order by tenant desc, id desc limit 1
) as last on true
