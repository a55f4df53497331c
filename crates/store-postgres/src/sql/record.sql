-- One round trip for a whole batch in which no delivery occurs twice. The caller holds the shards'
-- locks (shared), so that no shard changes hands before the commit, and the locks of the lanes of all
-- these deliveries, so that no successor is forgotten.
--
-- Each item is judged where its row is changed: a row that somebody else changed or removed at the
-- same moment is checked again by the server itself. Plan: primary key probes throughout.
with input as materialized (
    select i.*, s.shard is not null as held
    from unnest(
        $1::uuid[], $2::int2[], $3::int8[], $4::uuid[], $5::int4[], $6::int2[], $7::int8[],
        $8::int4[], $9::bool[], $10::int8[], $11::int4[], $12::int8[], $13::int8[], $14::int2[],
        $15::text[], $16::text[], $17::bytea[]
    ) with ordinality as i(
        id, shard, epoch, node, expected, state, due_at,
        charge, release, at, number, started_at, took, status,
        failure, detail, response, item
    )
    left join shard_lease s on s.shard = i.shard and s.epoch = i.epoch and s.node = i.node
        and s.expires_at > clock_timestamp()
),
gone as (
    delete from delivery_live l
    using input i
    where i.held and i.state > 1
      and l.id = i.id and l.attempts = i.expected and l.due_at < 9223372036854775807
      and not exists (select from subscription_gone g where g.id = l.subscription)
    returning
        l.id, l.event, l.subscription, l.tenant, l.seq, l.budget_began, l.created_at, i.at,
        l.attempts + i.charge as attempts, l.budget_base, i.state, l.lane, i.release, i.item
),
changed as (
    update delivery_live l
    set state = i.state, due_at = i.due_at, attempts = l.attempts + i.charge
    from input i
    where i.held and i.state <= 1
      and l.id = i.id and l.attempts = i.expected and l.due_at < 9223372036854775807
      and not exists (select from subscription_gone g where g.id = l.subscription)
    returning i.item
),
written as materialized (
    select item from gone union all select item from changed
),
done_new as (
    insert into delivery_done (
        id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
        budget_base, state, lane
    )
    select
        id, event, subscription, tenant, seq, budget_began, created_at, at, attempts,
        budget_base, state, lane
    from gone
),
attempt_new as (
    insert into attempt (
        delivery, number, started_at, took, status, failure, detail, response, late
    )
    select id, number, started_at, took, status, failure, detail, response, false
    from input i
    where i.number is not null and ((i.item in (select item from written)) is true)
    union all
    -- Kept for audit. A repeat of what was written already is no news.
    select id, number, started_at, took, status, failure, detail, response, true
    from input i
    where i.number is not null and ((i.item in (select item from written)) is not true)
      and not exists (
          select from attempt a
          where a.delivery = i.id and a.number = i.number and a.started_at = i.started_at
      )
),
block_new as (
    insert into lane_block (subscription, lane, delivery)
    select subscription, lane, id from gone where lane is not null and not release
),
freed as materialized (
    select g.item, g.at, (
        select p.id from delivery_live p
        where p.subscription = g.subscription and p.lane = g.lane
          and p.due_at = 9223372036854775807
        order by p.seq
        limit 1
    ) as next
    from gone g
    where g.release and g.lane is not null and not exists (
        select from lane_block b where b.subscription = g.subscription and b.lane = g.lane
    )
),
promoted as (
    update delivery_live l
    set due_at = f.at
    from freed f
    where l.id = f.next
    returning
        f.item, l.id, l.event, l.subscription, l.tenant, l.lane, l.seq, l.state, l.due_at,
        l.attempts, l.budget_base, l.budget_began, l.created_at
)
select
    i.item::int4 as item, i.held, (i.item in (select item from written)) is true as written,
    null::uuid as id, null::uuid as event, null::uuid as subscription, null::uuid as tenant,
    null::text as lane, null::int8 as seq, null::int2 as state, null::int8 as due_at,
    null::int4 as attempts, null::int4 as budget_base, null::int8 as budget_began,
    null::int8 as created_at, null::int8 as ended_at,
    null::text as topic, null::text as type, null::text as attributes, null::text as key,
    null::text as content_type, null::bytea as payload, null::int8 as accepted_at
from input i
union all
select
    p.item::int4, true, true,
    p.id, p.event, p.subscription, p.tenant, p.lane, p.seq, p.state, p.due_at,
    p.attempts, p.budget_base, p.budget_began, p.created_at, null,
    e.topic, e.type, e.attributes, e.key, e.content_type, e.payload, e.accepted_at
from promoted p
join event e on e.tenant = p.tenant and e.id = p.event
