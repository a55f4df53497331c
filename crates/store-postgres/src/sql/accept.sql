-- One round trip for a whole batch. The caller holds the tenants' locks (shared), so that versions
-- cannot move before the commit, and the locks of all lanes, so that sequence is commit order.
--
-- Joins between the parts are written as `(x in (select …)) is true`, which the planner keeps as
-- hashed lookups: with arrays of unknown length it would choose nested loops. Questions to tables
-- are `(select true … limit 1) is null`, which it keeps as probes of an index: for `not exists` it
-- might read a whole index into a hash table, as long as it believes the table to be small.
with event_in as materialized (
    select e.*, coalesce(t.version = e.catalog and not t.closed, false) as fresh
    from unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::bytea[], $9::int8[], $10::int8[], $11::text[], $12::bytea[], $13::int4[], $14::int4[],
        $25::text[], $26::int8[], $27::int8[], $29::int8[], $30::bytea[]
    ) with ordinality as e(
        id, tenant, topic, type, attributes, key, content_type,
        payload, accepted_at, catalog, idempotency_key, fingerprint, first, last, publisher_id,
        deliver_at, retention, kind, trace, item
    )
    left join tenant t on t.id = e.tenant
),
-- Sorted, so that two batches with the same keys wait for each other instead of deadlocking.
key_new as (
    insert into idempotency (tenant, key, fingerprint, event, accepted_at)
    select tenant, idempotency_key, fingerprint, id, accepted_at
    from event_in
    where fresh and idempotency_key is not null
    order by tenant, idempotency_key, item
    on conflict do nothing
    returning event
),
stored as materialized (
    select * from event_in
    where fresh and (idempotency_key is null or ((id in (select event from key_new)) is true))
),
event_new as (
    insert into event (
        id, tenant, topic, type, attributes, key, content_type, payload, accepted_at, deliveries,
        publisher_id, unwanted, deliver_at, retention, kind, trace, tx
    )
    select
        id, tenant, topic, type, attributes, key, content_type, payload, accepted_at,
        ($15::uuid[])[first:last], publisher_id, first > last, deliver_at, retention,
        -- Asked once for all rows: it is a text before it is a number.
        kind, trace, (select pg_current_xact_id()::text::int8)
    from stored
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select
        tenant, current_setting('posthorn.slot')::int4, count(*), sum(last - first + 1), 0, 0, 0
    from stored
    group by tenant
    on conflict (tenant, slot) do update
    set events = t.events + excluded.events, pending = t.pending + excluded.pending
),
placed as materialized (
    select wanted.*, nextval('delivery_seq') as seq
    from (
        select d.*
        from unnest(
            $15::uuid[], $16::uuid[], $17::uuid[], $18::uuid[], $19::int2[], $20::int2[],
            $21::text[], $22::int8[], $23::int8[], $24::int4[], $28::int8[]
        ) with ordinality as d(
            id, event, subscription, tenant, shard, lane_slot, lane, due_at, created_at, item,
            budget_began, place
        )
        where (d.event in (select id from stored)) is true
        order by d.place
    ) as wanted
),
-- The first of each lane becomes its head, if the lane is free.
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
        id, event, subscription, tenant, seq,
        -- Behind the head of its lane it is parked.
        case
            when lane is not null and ((place in (select place from head)) is not true)
                then 9223372036854775807
            else due_at
        end,
        budget_began, created_at, 0, 0, shard, 0, lane_slot, lane
    from placed
)
-- One row for the whole batch. What is due never is parked: one that enters its lane later has none until then.
select s.items, p.items as placed_items, p.seqs, p.parked
from (select array_agg(item::int4) as items from stored) as s
cross join (
    select
        array_agg(item) as items, array_agg(seq) as seqs,
        array_agg(
            due_at = 9223372036854775807
                or (lane is not null and ((place in (select place from head)) is not true))
        ) as parked
    from placed
) as p
