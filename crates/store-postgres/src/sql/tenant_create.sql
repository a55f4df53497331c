insert into tenant (id, name, created_at, version) values ($1, $2, $3, $4) on conflict do nothing
