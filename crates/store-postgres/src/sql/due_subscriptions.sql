-- A skip scan: one probe of delivery_live_due for each subscription with work, whatever its
-- backlog.
with recursive due as (
    select first.shard, first.subscription, first.due_at
    from unnest($1::int2[]) as wanted(shard)
    cross join lateral (
        select l.shard, l.subscription, l.due_at
        from delivery_live l
        where l.shard = wanted.shard and l.due_at < 9223372036854775807
        order by l.shard, l.subscription, l.due_at
        limit 1
    ) as first
    union all
    select next.shard, next.subscription, next.due_at
    from due
    cross join lateral (
        select l.shard, l.subscription, l.due_at
        from delivery_live l
        where l.shard = due.shard and l.subscription > due.subscription
          and l.due_at < 9223372036854775807
        order by l.shard, l.subscription, l.due_at
        limit 1
    ) as next
)
select subscription, due_at
from due
where not exists (select from subscription_gone g where g.id = due.subscription)
