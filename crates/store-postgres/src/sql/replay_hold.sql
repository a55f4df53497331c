-- Holds events until the commit, in the order given: nobody removes them, and nobody else makes a delivery of
-- them. Plan: primary key probes, partitions pruned.
select e.id
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select id from event where tenant = $1 and id = wanted.id limit 1 for update
) as e
