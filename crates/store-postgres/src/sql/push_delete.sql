-- The caller holds the agents. Plan: one probe of push_message_id for each item.
delete from push_message where ctid = any(array(
    select m.ctid
    from unnest($1::uuid[], $2::uuid[]) as i(agent, id)
    cross join lateral (
        select p.ctid from push_message p where p.agent = i.agent and p.id = i.id limit 1
    ) as m
))
returning agent, id
