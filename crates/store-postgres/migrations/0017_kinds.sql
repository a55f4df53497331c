-- What an event is about in one number: 32 bits made of its topic, 32 bits made of its type (FNV-1a). Two kinds may
-- share one; rows are checked anyway. An entry of an index with it is a third smaller than one with the texts, and
-- is compared without the rules of a language. See log/kinds.rs.
create function half(name text) returns int8 language sql immutable as $$
    with recursive fnv(place, hash) as (
        select 0, 2166136261::int8
        union all
        select
            place + 1,
            ((hash # get_byte(convert_to(name, 'UTF8'), place)) * 16777619) & 4294967295
        from fnv
        where place < octet_length(name)
    )
    select hash from fnv order by place desc limit 1
$$;

alter table event add column kind bigint;
drop index event_kind;
create unlogged table known_kind as
select topic, type, (half(topic) << 32) | half(type) as kind
from (select distinct topic, type from event) as named;
create unique index on known_kind (topic, type);
analyze known_kind;
update event e set kind = k.kind from known_kind k where k.topic = e.topic and k.type = e.type;
drop table known_kind;
drop function half;

create index event_kind on event (tenant, kind, id) where kind is not null;
