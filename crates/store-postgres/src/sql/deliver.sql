-- What is nearly all of the work: deliveries that have no lane and are delivered by their first attempt. The same as
-- `record.sql` for them, which has to be ready for much more: each row is touched once instead of twice, and no
-- partition is opened that is not written to. The caller holds the shards' locks (shared); no delivery occurs twice.
--
-- What is not hit is not judged here. Then the statement fails, and takes its transaction with it: the whole of it is given
-- to `record.sql`, which says why, and keeps the attempt. So a batch is one transaction, and nothing is written by halves.
--
-- Rows are held in the order of ids, as everywhere: that of the index, whatever the order of the array.
--
-- Plan: one probe of the primary key for each delivery. The full join is there because there is no nested loop for it:
-- with arrays of unknown length the server would choose one.
with held as materialized (
    select f.shard
    from unnest($1::int2[], $2::int8[], $3::uuid[]) as f(shard, epoch, node)
    where (
        select true from shard_lease s
        where s.shard = f.shard and s.epoch = f.epoch and s.node = f.node
        limit 1
    )
),
ended as (
    delete from delivery_live d
    where d.id = any($4::uuid[]) and d.attempts = 0 and d.lane_slot is null and d.lane is null
      and d.shard = any(array(select shard from held))
      and (select true from subscription_gone g where g.id = d.subscription limit 1) is null
    returning
        d.id, d.event, d.subscription, d.tenant, d.seq, d.budget_began, d.created_at,
        d.budget_base, d.revival
),
hit as materialized (
    select
        i.item, i.at, i.number, i.started_at, i.took, i.status, i.detail, i.response, i.timings,
        i.outcome, i.manual, e.*
    from ended e
    full join unnest(
        $4::uuid[], $5::int8[], $6::int4[], $7::int8[], $8::int8[], $9::int2[], $10::text[],
        $11::bytea[], $12::text[], $13::int4[], $14::bool[]
    ) with ordinality as i(
        delivery, at, number, started_at, took, status, detail, response, timings, outcome, manual,
        item
    ) on i.delivery = e.id
    -- Attempts are numbered in the order of the batch.
    order by i.item
),
done_new as (
    insert into delivery_done (
        id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
        budget_base, state, lane, revival, outcome
    )
    select
        id, event, subscription, tenant, seq, budget_began, created_at, at, 1, budget_base, 2,
        null, revival, outcome
    from hit
    where id is not null
),
attempt_new as (
    insert into attempt (
        delivery, number, started_at, took, status, failure, detail, response, timings, late,
        manual, request, tenant, subscription, no, tx
    )
    select
        id, number, started_at, took, status, null, detail, response, timings, false, manual, null,
        tenant, subscription, nextval('attempt_no'),
        -- Asked once for all rows: it is a text before it is a number.
        (select pg_current_xact_id()::text::int8)
    from hit
    where id is not null
),
tally_new as (
    insert into tally as t (tenant, slot, events, pending, delivered, dead, cancelled)
    select tenant, current_setting('posthorn.slot')::int4, 0, -count(*), count(*), 0, 0
    from hit
    where id is not null
    group by tenant
    on conflict (tenant, slot) do update
    set pending = t.pending + excluded.pending, delivered = t.delivered + excluded.delivered
)
select (
    case
        when count(*) = count(id) then '1'
        else 'a delivery has moved on meanwhile; its batch is written another way'
    end
)::int4 as all_hit
from hit
