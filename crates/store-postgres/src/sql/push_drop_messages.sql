-- The caller holds the agents. Plan: for each agent a range of push_message_pkey, one after the other
-- until there are enough.
delete from push_message where ctid = any(array(
    select m.row_at
    from unnest($1::uuid[]) as i(agent)
    cross join lateral (
        select p.ctid as row_at from push_message p
        where p.agent = i.agent order by p.seq limit $2::int8
    ) as m
    limit $2::int8
))
