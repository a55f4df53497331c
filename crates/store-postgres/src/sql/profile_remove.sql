update profile set removed = true, version = $3 where tenant = $1 and name = $2 and not removed
