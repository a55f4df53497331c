-- The kinds of events with a key. A skip scan: one probe of event_key for each. The key is asked for twice over, so that the
-- server takes the index that has it (see `stream` in log.rs).
with recursive found as (
    (
        select e.kind from event e
        where e.tenant = $1 and e.key = $2::text and e.key >= $2::text and e.key <= $2::text
        order by e.kind
        limit 1
    )
    union all
    select next.kind
    from found
    cross join lateral (
        select e.kind from event e
        where e.tenant = $1 and e.key = $2::text and e.key >= $2::text and e.key <= $2::text
            and e.kind > found.kind
        order by e.kind
        limit 1
    ) as next
)
select kind from found where kind is not null limit $3::int8
