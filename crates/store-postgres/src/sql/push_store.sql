-- The caller holds the agents, so that sequence is commit order, and sees to it that no two items
-- have the same id or the same topic. Verdicts: 0 stored, 1 no channel, 2 repeated, 3 outdated. A
-- newer message of a topic is written over the older one. Plan: one probe of each of
-- push_channel_pkey, push_message_id and push_message_topic for each item.
with item as materialized (
    select
        i.*,
        (
            select true from push_channel c where c.agent = i.agent and c.id = i.channel limit 1
        ) as open,
        (select m.seq from push_message m where m.agent = i.agent and m.id = i.id limit 1) as again,
        (
            select m.received_at from push_message m
            where m.agent = i.agent and m.channel = i.channel and m.topic = i.topic limit 1
        ) as newest
    from unnest(
        $1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::int8[], $6::int8[], $7::int8[],
        $8::text[], $9::text[], $10::text[], $11::bytea[]
    ) with ordinality as i(
        agent, channel, id, topic, received_at, ttl, expires_at, encoding, encryption, crypto_key,
        body, place
    )
),
judged as materialized (
    select
        item.*,
        case
            when open is null then 1
            when again is not null then 2
            when newest > received_at then 3
            else 0
        end as verdict
    from item
),
placed as materialized (
    select wanted.*, nextval('push_seq') as seq
    from (select * from judged where verdict = 0 order by place) as wanted
),
put as (
    insert into push_message (
        agent, seq, channel, id, topic, received_at, ttl, expires_at, encoding, encryption,
        crypto_key, body
    )
    select
        agent, seq, channel, id, topic, received_at, ttl, expires_at, encoding, encryption,
        crypto_key, body
    from placed
    on conflict (agent, channel, topic) where topic is not null do update set
        seq = excluded.seq, id = excluded.id, received_at = excluded.received_at,
        ttl = excluded.ttl, expires_at = excluded.expires_at, encoding = excluded.encoding,
        encryption = excluded.encryption, crypto_key = excluded.crypto_key, body = excluded.body
)
select place::int4 as place, 0 as verdict, seq from placed
union all
select place::int4, verdict, again from judged where verdict <> 0
