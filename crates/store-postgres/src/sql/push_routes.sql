-- Plan: for each ask one probe of push_agent_pkey and one of push_channel_pkey.
select
    ask.place::int4 as place, a.id, a.node, a.connected_at, a.created_at, a.seen_at,
    c.id as channel, c.key_hash
from unnest($1::uuid[], $2::uuid[]) with ordinality as ask(agent, channel, place)
cross join lateral (select * from push_agent p where p.id = ask.agent limit 1) as a
left join lateral (
    select * from push_channel h where h.agent = ask.agent and h.id = ask.channel limit 1
) as c on true
