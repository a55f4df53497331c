-- Plan: one row, and a primary key.
select s.millis, r.later, r.last
from skew s
left join replayed r on r.tenant = $1::uuid
