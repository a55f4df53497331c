-- The log: what lists, filters and counts are read from. See log.rs and tally.rs.
--
-- Some indexes have a condition that every row fulfils (seq > 0, no > 0, topic > ''). Only statements that say
-- it can use them. The others, of the hot path, must not even be tempted: while the server believes a table to
-- be empty, it takes any index that has a column they name.

-- What an attempt came to, as `Outcome::code` of the domain has it: the status, or a negative number made of
-- the failure's text (FNV-1a). Only for this migration.
create function outcome_of(status int2, failure text) returns int4 language sql immutable as $$
    select case
        when status is not null then status::int4
        when failure is not null then (
            with recursive fnv(place, hash) as (
                select 0, 2166136261::int8
                union all
                select
                    place + 1,
                    ((hash # get_byte(convert_to(failure, 'UTF8'), place)) * 16777619) & 4294967295
                from fnv
                where place < octet_length(failure)
            )
            select (-1 - (hash >> 1))::int4 from fnv order by place desc limit 1
        )
    end
$$;

-- When an id was made.
create function made_at(id uuid) returns int8 language sql immutable as $$
    select ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::int8
$$;

-- ---- events ------------------------------------------------------------------------------------

alter table event
    add column publisher_id text collate "C",
    -- That nobody wanted it. Not the same as having no deliveries: those can be forgotten.
    add column unwanted boolean not null default false;
update event set unwanted = true where deliveries = '{}';

-- One for both: the topics of a tenant, and the types of a topic, are few and found by skipping.
create index event_kind on event (tenant, topic, type, id) where topic > '';
create index event_key on event (tenant, key, id) where key is not null;
create index event_publisher_id on event (tenant, publisher_id, id) where publisher_id is not null;
create index event_unwanted on event (tenant, id) where unwanted;

-- ---- deliveries --------------------------------------------------------------------------------

-- What the last attempt that counted came to.
alter table delivery_live add column outcome integer;
alter table delivery_done add column outcome integer;

create unlogged table last_outcome as
select distinct on (delivery) delivery, outcome_of(status, failure) as outcome
from attempt
where not late and (status is not null or failure is not null)
order by delivery, number desc, started_at desc;
create unique index on last_outcome (delivery);
analyze last_outcome;

drop index delivery_done_subscription;
drop index delivery_done_dead;
update delivery_live d set outcome = o.outcome from last_outcome o where o.delivery = d.id;
update delivery_done d set outcome = o.outcome from last_outcome o where o.delivery = d.id;
drop table last_outcome;

create index delivery_done_state on delivery_done (subscription, state, id) where seq > 0;
-- The rest is rare, so it may have more.
create index delivery_done_undelivered on delivery_done (tenant, state, id) where state >= 10;
create index delivery_done_dead_event on delivery_done (tenant, event)
    where state between 10 and 19;
create index delivery_done_failed on delivery_done (tenant, outcome, id)
    where outcome not between 200 and 299;
create index delivery_done_failed_to on delivery_done (subscription, outcome, id)
    where outcome not between 200 and 299;

create index delivery_live_place on delivery_live (tenant, subscription, id) where seq > 0;
create index delivery_live_failed on delivery_live (tenant, subscription, id)
    where outcome not between 200 and 299;
create index delivery_live_leased on delivery_live (tenant, id) where state = 1;

-- ---- attempts ----------------------------------------------------------------------------------

-- Tells those apart that began in the same millisecond, in the order in which they were recorded.
create sequence attempt_no;
alter table attempt
    add column tenant uuid,
    add column subscription uuid,
    add column no bigint,
    -- Whether somebody asked for it.
    add column manual boolean not null default false;
update attempt a set tenant = d.tenant, subscription = d.subscription, no = nextval('attempt_no')
from (
    select id, tenant, subscription from delivery_live
    union all
    select id, tenant, subscription from delivery_done
) as d
where d.id = a.delivery;
-- Attempts of what is not there could never be read.
delete from attempt where tenant is null;
alter table attempt
    alter column tenant set not null,
    alter column subscription set not null,
    alter column no set not null;

create index attempt_place on attempt (tenant, started_at, no) where no > 0;
create index attempt_place_to on attempt (subscription, started_at, no) where no > 0;
create index attempt_failed on attempt (tenant, started_at, no)
    where (status between 200 and 299) is not true;
create index attempt_failed_to on attempt (subscription, started_at, no)
    where (status between 200 and 299) is not true;
create index attempt_manual on attempt (tenant, started_at, no) where manual;

-- ---- counts ------------------------------------------------------------------------------------

-- How many there are: the sum over all slots. Changed in the transactions that change the rows. Each
-- connection has a slot of its own, so that nobody waits for a row; a slot may be negative by itself.
create table tally (
    tenant uuid not null,
    slot integer not null,
    events bigint not null,
    pending bigint not null,
    delivered bigint not null,
    dead bigint not null,
    cancelled bigint not null,
    primary key (tenant, slot)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into tally
select
    tenant, 0, sum(events), sum(pending), sum(delivered), sum(dead), sum(cancelled)
from (
    select tenant, count(*) as events, 0 as pending, 0 as delivered, 0 as dead, 0 as cancelled
    from event group by tenant
    union all
    select tenant, 0, count(*), 0, 0, 0 from delivery_live group by tenant
    union all
    select
        tenant, 0, 0,
        count(*) filter (where state = 2),
        count(*) filter (where state between 10 and 19),
        count(*) filter (where state >= 20)
    from delivery_done group by tenant
) as counted
group by tenant;

-- When the tally was last compared with the rows.
create table tally_check (
    one boolean primary key default true check (one),
    checked_at timestamptz not null
);
insert into tally_check (checked_at) values (clock_timestamp());

-- How far the time in an id and the time of its row are apart at most, in milliseconds. So a period of time is
-- a range of ids.
create table skew (
    one boolean primary key default true check (one),
    millis bigint not null
);
insert into skew (millis)
select coalesce(max(apart), 0) from (
    select max(abs(accepted_at - made_at(id))) as apart from event
    union all
    select max(abs(created_at - made_at(id))) from delivery_live
    union all
    select max(abs(created_at - made_at(id))) from delivery_done
) as found;

drop function made_at;
drop function outcome_of;
