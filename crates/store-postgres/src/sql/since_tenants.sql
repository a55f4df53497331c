select id, name, created_at, version from tenant where version > $1 order by id
