-- The caller holds the agents. Plan: one probe of push_channel_pkey for each item.
delete from push_channel where ctid = any(array(
    select c.ctid
    from unnest($1::uuid[], $2::uuid[]) as i(agent, channel)
    cross join lateral (
        select h.ctid from push_channel h where h.agent = i.agent and h.id = i.channel limit 1
    ) as c
))
returning agent, id
