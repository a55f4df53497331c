update tenant set version = $2 where id = $1
