select count(*) from event where $1::uuid is null or tenant = $1
