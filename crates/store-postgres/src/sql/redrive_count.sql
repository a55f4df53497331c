-- Plan: delivery_done_undelivered of the tenant, from 10 to 19.
select count(*)
from delivery_done d
where d.tenant = $1 and d.state between 10 and 19
  and ($2::uuid is null or d.subscription = $2)
  and ($3::int2 is null or d.state = $3)
  and d.ended_at >= $4::int8 and d.ended_at < $5::int8
  and (
      select true from subscription s where s.id = d.subscription and s.deleted_at is not null
      limit 1
  ) is null
  and (
      select true from event e where e.tenant = $1 and e.id = d.event and e.expunged_at is not null
      limit 1
  ) is null
