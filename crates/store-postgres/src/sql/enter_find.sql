-- Deliveries that enter their lanes now. Plan: a range of scheduled_time.
select delivery, subscription, lane_slot, lane, at
from scheduled
where at <= $1::int8
order by at, seq
limit $2::int8
