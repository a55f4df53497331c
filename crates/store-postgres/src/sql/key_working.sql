-- An operator key that works at a time; asked once, at the start of a server.
select 1
from api_key
where tenant is null and revoked_at is null and (expires_at is null or expires_at > $1)
limit 1
