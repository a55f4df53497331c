update job
set seen = seen + $2::int8, done = done + $3::int8, cursor = $4, state = $5::int2, finished_at = $6,
    problem = $7
where id = $1
