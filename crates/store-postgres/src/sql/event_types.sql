-- The types of topics of a tenant. A skip scan: one probe of event_kind for each.
with recursive found as (
    select first.topic, first.type
    from unnest($2::text[]) as wanted(topic)
    cross join lateral (
        select e.topic, e.type from event e
        where e.tenant = $1 and e.topic = wanted.topic and e.topic > ''
        order by e.type
        limit 1
    ) as first
    union all
    select next.topic, next.type
    from found
    cross join lateral (
        select e.topic, e.type from event e
        where e.tenant = $1 and e.topic = found.topic and e.type > found.type
          and e.topic > ''
        order by e.type
        limit 1
    ) as next
)
select topic, type from found limit $3::int8
