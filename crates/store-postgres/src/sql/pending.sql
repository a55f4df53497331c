-- Plan: for each ask a range of delivery_live_due, which has the wanted order.
select
    ask.item::int4 as item, l.id, l.event, l.subscription, l.tenant, l.lane, l.seq, l.state,
    l.due_at, l.attempts, l.budget_base, l.budget_began, l.revival, l.created_at, null::int8 as ended_at,
    l.outcome
from unnest($1::int2[], $2::uuid[], $3::int8[], $4::int8[], $5::int8[])
    with ordinality as ask(shard, subscription, since, until, max, item)
cross join lateral (
    select *
    from delivery_live d
    where d.shard = ask.shard and d.subscription = ask.subscription
      and d.due_at >= ask.since and d.due_at <= ask.until and d.due_at < 9223372036854775807
    order by d.due_at, d.seq
    limit ask.max
) as l
where not exists (select from subscription_gone g where g.id = ask.subscription)
order by ask.item, l.due_at, l.seq
