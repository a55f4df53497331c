-- Plan: for each ask one probe of push_agent_pkey and two ranges of push_channel_pkey.
select
    ask.place::int4 as place, a.id, a.node, a.connected_at, a.created_at, a.seen_at,
    array(select c.id from push_channel c where c.agent = a.id order by c.id) as channels,
    array(select c.key_hash from push_channel c where c.agent = a.id order by c.id) as keys
from unnest($1::uuid[]) with ordinality as ask(id, place)
cross join lateral (select * from push_agent p where p.id = ask.id limit 1) as a
