-- Plan: for each agent a range of push_message_pkey, up to the limit; backwards, because the newest
-- have not expired.
select (
    select count(*)
    from (
        select 1 from push_message m
        where m.agent = ask.agent and m.expires_at > $2::int8
        order by m.seq desc
        limit $3::int8
    ) as alive
) as number
from unnest($1::uuid[]) with ordinality as ask(agent, place)
order by ask.place
