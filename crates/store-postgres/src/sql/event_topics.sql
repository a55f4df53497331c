-- The topics of a tenant. A skip scan: one probe of event_kind for each.
with recursive found as (
    (
        select e.topic from event e
        where e.tenant = $1 and e.topic > ''
        order by e.topic
        limit 1
    )
    union all
    select next.topic
    from found
    cross join lateral (
        select e.topic from event e
        where e.tenant = $1 and e.topic > found.topic and e.topic > ''
        order by e.topic
        limit 1
    ) as next
)
select topic from found limit $2::int8
