-- Holds those that are still outside their lanes, in the order given, until the commit; not those of deleted
-- subscriptions. Plan: primary key probes.
select l.id
from unnest($1::uuid[]) as wanted(id)
cross join lateral (
    select id, subscription from delivery_live
    where id = wanted.id and lane is null and due_at = 9223372036854775807
    limit 1
    for update
) as l
where not exists (select from subscription_gone g where g.id = l.subscription)
