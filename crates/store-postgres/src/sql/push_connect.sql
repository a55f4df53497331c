-- The caller holds the agents, each of which occurs once, and there are not too many, because an
-- array is searched for each. Tells how they were before. Plan: two probes of push_agent_pkey for
-- each item; a join with the items might go the other way round.
with item as materialized (
    select
        i.place, a.*,
        a.connected_at < i.at
            or (a.connected_at = i.at and coalesce(a.node = i.node, true)) as wins
    from unnest($1::uuid[], $2::text[], $3::int8[]) with ordinality as i(agent, node, at, place)
    cross join lateral (select * from push_agent p where p.id = i.agent limit 1) as a
),
changed as (
    update push_agent p
    set node = ($2::text[])[array_position($1::uuid[], p.id)],
        connected_at = ($3::int8[])[array_position($1::uuid[], p.id)],
        seen_at = greatest(p.seen_at, ($4::int8[])[array_position($1::uuid[], p.id)])
    where p.id = any(array(select id from item where wins))
)
select
    i.place::int4 as place, i.id, i.node, i.connected_at, i.created_at, i.seen_at, i.wins,
    array(select c.id from push_channel c where c.agent = i.id order by c.id) as channels,
    array(select c.key_hash from push_channel c where c.agent = i.id order by c.id) as keys
from item i
