select from subscription where tenant = $1 and name = $2 and id <> $3 and deleted_at is null
