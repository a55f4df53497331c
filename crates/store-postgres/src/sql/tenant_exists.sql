select 1 from tenant where id = $1
