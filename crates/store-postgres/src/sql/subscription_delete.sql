with gone as (
    update subscription set deleted_at = $2 where id = $1
),
-- A subscription that is gone is not failing.
forgotten as (
    delete from failing where subscription = $1
)
insert into subscription_gone (id, shard, deleted_at) values ($1, $3::int2, $2)
