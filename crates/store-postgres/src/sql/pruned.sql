insert into pruned (before) values ($1::int8)
on conflict (one) do update set before = excluded.before where pruned.before < excluded.before
