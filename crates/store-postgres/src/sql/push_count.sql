-- Plan: for each agent a range of push_message_pkey.
select (
    select count(*) from push_message m where m.agent = ask.agent and m.expires_at > $2::int8
) as number
from unnest($1::uuid[]) with ordinality as ask(agent, place)
order by ask.place
