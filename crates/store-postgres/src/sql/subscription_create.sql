insert into subscription (id, tenant) values ($1, $2)
