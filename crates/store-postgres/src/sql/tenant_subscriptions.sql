-- Subscriptions of a tenant that are still to be deleted. Plan: subscription_of_tenant.
select id from subscription
where tenant = $1 and deleted_at is null
order by id
limit $2::int8
