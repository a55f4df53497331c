select exists (select from job where id = $1)
