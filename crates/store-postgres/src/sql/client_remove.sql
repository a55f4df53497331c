update client set removed = true, sealed_secret = null, scopes = null, version = $3
where tenant = $1 and name = $2 and not removed
