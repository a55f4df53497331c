-- The caller has checked whose delivery it is. Plan: attempt_delivery, partitions pruned.
select delivery, number, started_at, took, status, failure, detail, response, late, timings, manual,
    response_expunged_at, request
from attempt where delivery = $1
order by started_at, number, late
