update redrive
set moved = moved + $2::int8, cursor = coalesce($3, cursor), state = $4::int2, finished_at = $5
where id = $1
