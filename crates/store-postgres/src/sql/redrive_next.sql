-- Dead letters of the tenant, from the cursor on, by id. Plan: for each reason the next ones of
-- delivery_done_undelivered, in order. The state is asked for twice over for the reason that log.rs gives.
select d.id, d.subscription, d.lane
from (select state::int2 as state from generate_series(10, 19) as state) as reason
cross join lateral (
    select d.id, d.subscription, d.lane
    from delivery_done d
    where d.tenant = $1 and d.state = reason.state and d.state >= 10
      and d.state >= reason.state and d.state <= reason.state
      and ($2::uuid is null or d.subscription = $2)
      and d.ended_at >= $4::int8 and d.ended_at < $5::int8
      and d.id > $6
      and (
          select true from subscription s where s.id = d.subscription and s.deleted_at is not null
          limit 1
      ) is null
      and (
          select true from event e
          where e.tenant = $1 and e.id = d.event and e.expunged_at is not null
          limit 1
      ) is null
    order by d.id
    limit $7::int8
) as d
where $3::int2 is null or reason.state = $3
order by d.id
limit $7::int8
