-- The caller holds the agents. Plan: for each agent one probe of push_message_pkey.
select i.agent as id
from unnest($1::uuid[]) as i(agent)
where (select true from push_message p where p.agent = i.agent limit 1) is null
