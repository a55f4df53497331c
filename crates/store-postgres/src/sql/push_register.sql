-- The caller holds the agents, each of which occurs once. Plan: probes of push_channel_pkey for each
-- item.
with item as materialized (
    select
        i.*,
        (
            select true from push_channel c where c.agent = i.agent and c.id = i.channel limit 1
        ) is true as again
    from unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::int8[])
        with ordinality as i(agent, channel, key_hash, at, place)
),
put as (
    insert into push_channel (agent, id, key_hash, created_at)
    select agent, channel, key_hash, at from item
    on conflict (agent, id) do update set key_hash = excluded.key_hash
)
select agent as id, again from item
