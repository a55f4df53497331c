-- No row when there is one of that name; one that was removed is made anew.
insert into topic (tenant, name, description, attributes, created_at, version, labels)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (tenant, name) do update set
    description = excluded.description,
    attributes = excluded.attributes,
    labels = excluded.labels,
    created_at = excluded.created_at,
    version = excluded.version,
    removed = false
where topic.removed
