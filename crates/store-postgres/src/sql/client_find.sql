select version from client where tenant = $1 and name = $2 and not removed
