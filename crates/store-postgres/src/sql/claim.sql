-- The caller holds the shards' locks (shared). A row that is hit is removed and written anew: see
-- record.sql for the reason, and for the order. Plan: one probe of each primary key for each claim.
with hit as materialized (
    select c.item, c.until, l.*
    from (
        select * from unnest(
            $1::uuid[], $2::int2[], $3::int8[], $4::uuid[], $5::int4[], $6::int8[], $7::int4[]
        ) with ordinality as u(id, shard, epoch, node, expected, until, revival, item)
        order by u.id
    ) as c
    cross join lateral (
        select * from delivery_live d
        where d.id = c.id and d.attempts = c.expected and d.revival = c.revival
          and d.due_at is distinct from 9223372036854775807
        limit 1
        for update
    ) as l
    where (
        select true from shard_lease s
        where s.shard = c.shard and s.epoch = c.epoch and s.node = c.node
          and s.expires_at > clock_timestamp()
        limit 1
    ) and (
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
        id, event, subscription, tenant, seq, until, budget_began, created_at, attempts,
        budget_base, shard, 1, lane_slot, lane, revival, outcome
    from hit
    cross join (select count(*) as number from removed) as first
    where first.number > 0
)
select item::int4 as item from hit
