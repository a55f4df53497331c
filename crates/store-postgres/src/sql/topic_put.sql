-- An existing topic keeps the time it was made; one that was removed is new.
insert into topic (tenant, name, description, attributes, created_at, version)
values ($1, $2, $3, $4, $5, $6)
on conflict (tenant, name) do update set
    description = excluded.description,
    attributes = excluded.attributes,
    created_at = case when topic.removed then excluded.created_at else topic.created_at end,
    version = excluded.version,
    removed = false
