-- Once a minute. All unfinished work.
select l.tenant, l.subscription, l.number
from (
    select tenant, subscription, count(*)::int8 as number
    from delivery_live
    group by tenant, subscription
) as l
where not exists (select from subscription_gone g where g.id = l.subscription)
