-- Removes figures of some scopes, and of those between two texts. Rows are held in the order in which nodes write them, so
-- that nobody waits in a circle. Plan: ranges of rollup_scope and rollup_hour_scope.
with minute_found as materialized (
    select r.at, r.scope, r.node
    from unnest($1::text[]) as wanted(scope)
    cross join lateral (
        select at, scope, node from rollup where scope > '' and scope = wanted.scope limit $4::int8
    ) as r
    union all
    (
        select at, scope, node from rollup
        where scope > '' and scope > $2::text collate "C" and scope < $3::text collate "C"
        limit $4::int8
    )
    limit $4::int8
),
minutes as (
    delete from rollup where ctid = any (array(
        select r.ctid
        from (select * from minute_found order by at, scope, node) as f
        cross join lateral (
            select ctid from rollup
            where at = f.at and scope = f.scope and node = f.node
            limit 1
            for update
        ) as r
    ))
    returning 1
),
hour_found as materialized (
    select r.at, r.scope
    from unnest($1::text[]) as wanted(scope)
    cross join lateral (
        select at, scope from rollup_hour where scope > '' and scope = wanted.scope limit $4::int8
    ) as r
    union all
    (
        select at, scope from rollup_hour
        where scope > '' and scope > $2::text collate "C" and scope < $3::text collate "C"
        limit $4::int8
    )
    limit $4::int8
),
hours as (
    delete from rollup_hour where ctid = any (array(
        select r.ctid
        from (select * from hour_found order by at, scope) as f
        cross join lateral (
            select ctid from rollup_hour where at = f.at and scope = f.scope
            limit 1
            for update
        ) as r
    ))
    returning 1
)
select (select count(*) from minutes) + (select count(*) from hours) as removed
