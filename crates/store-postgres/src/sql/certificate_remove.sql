update certificate
set removed = true, sealed_key = null, pem = '', subject = '', description = '', version = $3
where tenant = $1 and id = $2 and not removed
