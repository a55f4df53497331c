-- The first kind of each topic of a tenant. A skip scan: one probe of event_kind for each.
with recursive found as (
    (
        select e.kind from event e
        where e.tenant = $1 and e.kind is not null
        order by e.kind
        limit 1
    )
    union all
    select next.kind
    from found
    cross join lateral (
        select e.kind from event e
        where e.tenant = $1 and e.kind > (found.kind | 4294967295) and e.kind is not null
        order by e.kind
        limit 1
    ) as next
)
select kind from found limit $2::int8
