select
    tenant, id, kind, description, owner, host, scopes, thumbprint, subject, pem, sealed_key,
    not_before, not_after, created_at, updated_at, revoked_at, version, removed
from certificate where version > $1 order by id
