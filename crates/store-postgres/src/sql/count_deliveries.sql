select (case when g.id is null then 0 else 20 end)::int2 as state, count(*) as number
from delivery_live l
left join subscription_gone g on g.id = l.subscription
where $1::uuid is null or l.tenant = $1
group by 1
union all
select d.state, count(*)
from delivery_done d
where $1::uuid is null or d.tenant = $1
group by 1
