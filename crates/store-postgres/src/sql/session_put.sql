insert into page_session (id, kind, tenant, realm, key, label, expires_at, document)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (id) do nothing
