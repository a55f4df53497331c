-- Sorted, so that two nodes that write down the same keys wait for each other instead of deadlocking.
insert into key_use as known (key, used_at)
select u.key, max(u.used_at)
from unnest($1::uuid[], $2::int8[]) as u(key, used_at)
where (select true from api_key k where k.id = u.key limit 1)
group by u.key
order by u.key
on conflict (key) do update set used_at = excluded.used_at where known.used_at < excluded.used_at
