update job set state = $3::int2, finished_at = $4::int8
where tenant = $1 and id = $2 and state = 0
