-- The caller holds the agents, each of which occurs once. Plan: for each of them a range of
-- push_message_pkey, backwards, to the newest that goes, then the range up to there. The offset
-- keeps the planner from joining the other way round.
with cut as materialized (
    select
        i.place, i.agent,
        (
            select m.seq from push_message m
            where m.agent = i.agent and m.expires_at > $3::int8
            order by m.seq desc
            limit 1 offset i.keep
        ) as seq
    from unnest($1::uuid[], $2::int8[]) with ordinality as i(agent, keep, place)
),
surplus as materialized (
    select cut.place, m.row_at
    from cut
    cross join lateral (
        select p.ctid as row_at from push_message p
        where p.agent = cut.agent and p.seq <= cut.seq and p.expires_at > $3::int8
        offset 0
    ) as m
),
gone as (
    delete from push_message where ctid = any(array(select row_at from surplus))
)
select place::int4 as place, count(*) as removed from surplus group by place
