-- An existing topic keeps the time it was made; one that was removed is new.
insert into topic (tenant, name, description, attributes, created_at, version, labels)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (tenant, name) do update set
    description = excluded.description,
    attributes = excluded.attributes,
    labels = excluded.labels,
    created_at = case when topic.removed then excluded.created_at else topic.created_at end,
    version = excluded.version,
    removed = false
