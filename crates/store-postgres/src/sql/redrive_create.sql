insert into redrive (id, tenant, filter, per_second, state, total, moved, created_at, finished_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict do nothing
