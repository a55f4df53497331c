insert into profile (tenant, name, base, policy, updated_at, version)
values ($1, $2, $3, $4, $5, $6)
on conflict (tenant, name) do update set
    base = excluded.base,
    policy = excluded.policy,
    updated_at = excluded.updated_at,
    version = excluded.version,
    removed = false
