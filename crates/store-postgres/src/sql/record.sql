-- One round trip for a whole batch in which no delivery occurs twice. The caller holds the shards'
-- locks (shared), so that no shard changes hands before the commit, and the locks of the lanes of
-- all these deliveries, so that no successor is forgotten. Whether the lease has run out does not matter here: as long
-- as nobody took the shard, its last owner alone knows what became of the attempts that it made.
--
-- Rows are held in the order of ids, as everywhere, so that nobody waits in a circle.
--
-- A row that is hit is held, so that somebody who changes it at the same moment is seen. It is then
-- removed, and written anew when it is to be tried again: an update would have to join two tables,
-- and for a join the server chooses between plans, of which only one is right for every size.
with input as materialized (
    select i.*, (
        select true from shard_lease s
        where s.shard = i.shard and s.epoch = i.epoch and s.node = i.node
        limit 1
    ) is true as held
    from unnest(
        $1::uuid[], $2::int2[], $3::int8[], $4::uuid[], $5::int4[], $6::int2[], $7::int8[],
        $8::int4[], $9::bool[], $10::int8[], $11::int4[], $12::int8[], $13::int8[], $14::int2[],
        $15::text[], $16::text[], $17::bytea[], $18::uuid[], $19::int4[], $21::text[], $22::int4[],
        $23::bool[], $24::text[]
    ) with ordinality as i(
        id, shard, epoch, node, expected, state, due_at,
        charge, release, at, number, started_at, took, status,
        failure, detail, response, tenant, revival, timings, outcome, manual, request,
        item
    )
    order by i.id
),
hit as materialized (
    select
        i.item, i.state as new_state, i.due_at as new_due_at, i.release, i.at,
        l.attempts + i.charge as new_attempts, coalesce(i.outcome, l.outcome) as new_outcome,
        i.number, i.started_at, i.took, i.status, i.failure, i.detail, i.response, i.timings,
        i.manual, i.request, l.*
    from input i
    cross join lateral (
        select * from delivery_live d
        where d.id = i.id and d.attempts = i.expected
          -- What the receiver has, it has, whatever was done by hand since it was sent. But one that came
          -- back from its end after the lanes were held is in a lane that is not.
          and (
              (d.due_at is distinct from 9223372036854775807 and d.revival = i.revival)
              or (i.state = 2 and (
                  d.lane_slot is null or d.revival = i.revival or exists (
                      select from pg_locks k
                      where k.locktype = 'advisory' and k.pid = pg_backend_pid()
                        and k.classid = $20::int4::oid and k.objid = d.lane_slot::int4::oid
                        and k.objsubid = 2 and k.granted
                  )
              ))
          )
        limit 1
        for update
    ) as l
    where i.held and (
        select true from subscription_gone g where g.id = l.subscription limit 1
    ) is null
),
removed as (
    delete from delivery_live where id = any(array(select id from hit)) returning id
),
live_again as (
    insert into delivery_live (
        id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
        budget_base, shard, state, lane_slot, lane, revival, outcome
    )
    select
        id, event, subscription, tenant, seq, new_due_at, budget_began, created_at, new_attempts,
        budget_base, shard, new_state, lane_slot, lane, revival, new_outcome
    from hit
    -- Not before the old rows are gone.
    cross join (select count(*) as number from removed) as first
    where new_state <= 1 and first.number > 0
),
done_new as (
    insert into delivery_done (
        id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
        budget_base, state, lane, revival, outcome
    )
    select
        id, event, subscription, tenant, seq, budget_began, created_at, at, new_attempts,
        budget_base, new_state, lane, revival, new_outcome
    from hit
    where new_state > 1
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        tenant, current_setting('posthorn.slot')::int4, 0, -count(*),
        count(*) filter (where new_state = 2),
        count(*) filter (where new_state between 10 and 19),
        count(*) filter (where new_state >= 20)
    from hit
    where new_state > 1
    group by tenant
    on conflict (tenant, slot) do update
    set pending = t.pending + excluded.pending, delivered = t.delivered + excluded.delivered,
        dead = t.dead + excluded.dead, cancelled = t.cancelled + excluded.cancelled
),
attempt_new as (
    insert into attempt (
        delivery, number, started_at, took, status, failure, detail, response, timings, late,
        manual, request, tenant, subscription, no, tx
    )
    select
        id, number, started_at, took, status, failure, detail, response, timings, false,
        manual, request, tenant, subscription, nextval('attempt_no'),
        -- Asked once for all rows: it is a text before it is a number.
        (select pg_current_xact_id()::text::int8)
    from hit
    where number is not null
    union all
    -- Kept for audit. A repeat of what was written already is no news; and what was removed for good leaves no
    -- trace.
    select
        i.id, i.number, i.started_at, i.took, i.status, i.failure, i.detail, i.response, i.timings,
        true, i.manual, i.request, i.tenant, own.subscription, nextval('attempt_no'),
        (select pg_current_xact_id()::text::int8)
    from input i
    cross join lateral (
        select d.subscription from delivery_live d where d.id = i.id
        union all
        select d.subscription from delivery_done d where d.tenant = i.tenant and d.id = i.id
        limit 1
    ) as own
    where i.number is not null and ((i.item in (select item from hit)) is not true)
      and (
          select true from attempt a
          where a.delivery = i.id and a.number = i.number and a.started_at = i.started_at
          limit 1
      ) is null
),
block_new as (
    insert into lane_block (subscription, lane, delivery)
    select subscription, lane, id from hit
    where new_state > 1 and lane is not null and not release
),
-- The next of each lane whose head has gone. One that is parked heads no lane, and ends here only when
-- it arrived before it was made to wait.
promoted as materialized (
    select h.item, greatest(h.at, p.held_until) as at, p.*
    from hit h
    cross join lateral (
        select * from delivery_live d
        where d.subscription = h.subscription and d.lane = h.lane
          and d.due_at = 9223372036854775807
          and d.id <> all(array(select id from hit where due_at = 9223372036854775807))
        order by d.seq
        limit 1
    ) as p
    where h.new_state > 1 and h.release and h.lane is not null
      and h.due_at < 9223372036854775807 and (
        select true from lane_block b where b.subscription = h.subscription and b.lane = h.lane
        limit 1
    ) is null
),
live_promoted as (
    update delivery_live l
    set due_at = (select p.at from promoted p where p.id = l.id limit 1), held_until = null
    where l.id = any(array(
        select id from promoted where (select count(*) from removed) > 0
    ))
)
-- Only what is not as it is nearly always: written, and nobody promoted.
select
    i.item::int4 as item, i.held,
    null::uuid as id, null::uuid as event, null::uuid as subscription, null::uuid as tenant,
    null::text as lane, null::int8 as seq, null::int2 as state, null::int8 as due_at,
    null::int4 as attempts, null::int4 as budget_base, null::int8 as budget_began,
    null::int4 as revival,
    null::int8 as created_at, null::int8 as ended_at, null::int4 as outcome,
    null::text as topic, null::text as type, null::text as attributes, null::text as key,
    null::text as content_type, null::bytea as payload, null::int8 as accepted_at,
    null::text as publisher_id, null::int8 as deliver_at, null::int8 as retention,
    null::int8 as expunged_at, null::bytea as trace
from input i
where not (i.held and (i.item in (select item from hit)) is true)
union all
select
    p.item::int4, true,
    p.id, p.event, p.subscription, p.tenant, p.lane, p.seq, p.state, p.at,
    p.attempts, p.budget_base, p.budget_began, p.revival, p.created_at, null, p.outcome,
    e.topic, e.type, e.attributes, e.key, e.content_type, e.payload, e.accepted_at, e.publisher_id,
    e.deliver_at, e.retention, e.expunged_at, e.trace
from promoted p
cross join lateral (
    select * from event where tenant = p.tenant and id = p.event limit 1
) as e
