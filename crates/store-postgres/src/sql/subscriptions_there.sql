-- Which of these subscriptions a tenant has. Plan: one probe of the primary key for each.
select s.id
from unnest($2::uuid[]) as wanted(id)
cross join lateral (
    select id from subscription
    where id = wanted.id and tenant = $1 and deleted_at is null
    limit 1
) as s
