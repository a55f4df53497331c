insert into rollup_hour (at, scope, counts)
select * from unnest($1::int8[], $2::text[], $3::bytea[])
on conflict (at, scope) do update set counts = excluded.counts
