insert into job (
    id, tenant, work, per_second, state, seen, done, created_by, created_at, finished_at, problem
)
select
    $1::uuid, $2::uuid, $3::text, $4::int4, $5::int2, $6::int8, $7::int8, $8::text, $9::int8,
    $10::int8, $11::text
where exists (select from tenant where id = $2 and not closed)
on conflict do nothing
