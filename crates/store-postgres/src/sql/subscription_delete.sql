with gone as (
    update subscription set deleted_at = $3, version = $4, secrets = '[]'
    where tenant = $1 and id = $2 and deleted_at is null
    returning id
),
-- A subscription that is gone is not failing.
forgotten as (
    delete from failing where subscription in (select id from gone)
)
insert into subscription_gone (id, shard, deleted_at)
select id, $5::int2, $3 from gone
