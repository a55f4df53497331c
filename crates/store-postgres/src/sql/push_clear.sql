-- The caller holds the agents. Plan: two probes of push_agent_pkey for each item.
with hit as materialized (
    select i.place, a.id
    from unnest($1::uuid[], $2::text[], $3::int8[]) with ordinality as i(agent, node, at, place)
    cross join lateral (
        select p.id from push_agent p
        where p.id = i.agent and p.node = i.node and p.connected_at = i.at
        limit 1
    ) as a
),
cleared as (
    update push_agent set node = null where id = any(array(select id from hit))
)
select place::int4 as place from hit
