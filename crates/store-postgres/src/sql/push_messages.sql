-- Plan: for each ask a range of push_message_pkey, which has the wanted order.
select
    ask.place::int4 as place, m.agent, m.seq, m.channel, m.id, m.topic, m.received_at, m.ttl,
    m.encoding, m.encryption, m.crypto_key, m.body
from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[])
    with ordinality as ask(agent, after, now, max, place)
cross join lateral (
    select * from push_message p
    where p.agent = ask.agent and p.seq > ask.after and p.expires_at > ask.now
    order by p.seq
    limit ask.max
) as m
order by ask.place, m.seq
