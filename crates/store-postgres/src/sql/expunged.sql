-- Which of these events have no payload any more. Plan: primary key probes, partitions pruned.
select e.id
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select id from event
    where tenant = $1 and id = wanted.id and expunged_at is not null
    limit 1
) as e
