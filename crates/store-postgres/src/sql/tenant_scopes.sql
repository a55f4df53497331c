-- Subscriptions that a tenant has had, deleted ones included. Plan: subscription_ever.
select id from subscription where tenant = $1
