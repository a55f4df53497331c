select version, kind, revoked_at from certificate
where tenant = $1 and id = $2 and not removed
