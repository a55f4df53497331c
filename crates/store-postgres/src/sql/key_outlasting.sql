-- An operator key that works at least as long as another one. A comparison with null is never true:
-- what ends never outlasts what does not. Operator keys are few, and this is asked when one is revoked.
select 1
from api_key
where tenant is null and revoked_at is null and id <> $1 and (expires_at is null or expires_at >= $2)
limit 1
