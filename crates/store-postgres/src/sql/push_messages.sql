-- Plan: for each ask a range of push_message_topics and, where that leaves room, one of
-- push_message_pkey; both have the wanted order. The second passes over messages with a topic, which
-- are few: who comes to it has read those before, and has them acknowledged soon.
select
    ask.place::int4 as place, m.agent, m.seq, m.channel, m.id, m.topic, m.received_at, m.ttl,
    m.encoding, m.encryption, m.crypto_key, m.body
from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[])
    with ordinality as ask(agent, after_topics, after, now, max, place)
cross join lateral (
    with topics as materialized (
        select * from push_message p
        where p.agent = ask.agent and p.seq > ask.after_topics and p.topic is not null
            and p.expires_at > ask.now
        order by p.seq
        limit ask.max
    )
    select * from topics
    union all
    (
        select * from push_message p
        where p.agent = ask.agent and p.seq > ask.after and p.topic is null
            and p.expires_at > ask.now
        order by p.seq
        limit ask.max - (select count(*) from topics)
    )
) as m
order by ask.place, m.topic is null, m.seq
