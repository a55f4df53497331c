select version from subscription where tenant = $1 and id = $2 and deleted_at is null
