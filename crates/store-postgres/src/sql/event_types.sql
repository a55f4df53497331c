-- The kinds of topics of a tenant; each topic is given by the kinds that it may have. A skip scan: one probe of
-- event_kind for each.
with recursive found as (
    select first.kind, wanted.last
    from unnest($2::int8[], $3::int8[]) as wanted(first, last)
    cross join lateral (
        select e.kind from event e
        where e.tenant = $1 and e.kind >= wanted.first and e.kind <= wanted.last
        order by e.kind
        limit 1
    ) as first
    union all
    select next.kind, found.last
    from found
    cross join lateral (
        select e.kind from event e
        where e.tenant = $1 and e.kind > found.kind and e.kind <= found.last
        order by e.kind
        limit 1
    ) as next
)
select kind from found limit $4::int8
