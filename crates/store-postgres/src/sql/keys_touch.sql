-- Sorted, so that two nodes that write down the same keys wait for each other instead of deadlocking.
insert into key_use as known (key, used_at)
select u.id, max(u.used_at)
from unnest($1::uuid[], $2::int8[], $3::text[]) as u(id, used_at, key)
where (select true from entry e where e.kind = 'key' and e.key = u.key limit 1)
group by u.id
order by u.id
on conflict (key) do update set used_at = excluded.used_at where known.used_at < excluded.used_at
