-- Plan: the primary key. Nothing comes back when an answer is kept, or somebody else is at it.
insert into kept_answer as kept (key, seed_at, seed, holder, until, expires_at)
values (
    $1, $2::int8, $3::uuid, $4::uuid,
    clock_timestamp() + $5::int8 * interval '1 millisecond', $6::int8
)
on conflict (key) do update set
    holder = excluded.holder,
    until = excluded.until,
    seed_at = case when kept.expires_at <= $7::int8 then excluded.seed_at else kept.seed_at end,
    seed = case when kept.expires_at <= $7::int8 then excluded.seed else kept.seed end,
    expires_at = case when kept.expires_at <= $7::int8 then excluded.expires_at else kept.expires_at end,
    status = null,
    body = null
where kept.expires_at <= $7::int8
    or (kept.status is null and (
        kept.until is null or kept.until <= clock_timestamp() or kept.holder = excluded.holder
    ))
returning seed_at, seed
