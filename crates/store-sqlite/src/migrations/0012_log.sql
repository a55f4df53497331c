-- The log: what lists, filters and counts are read from. See log.rs.

alter table event add column publisher_id text;
-- What the last attempt that counted came to; see `Outcome::code` of the domain.
alter table delivery add column outcome integer;

-- Attempts in the order in which they were recorded.
create table new_attempt (
    no           integer primary key,
    delivery     integer not null,
    subscription integer not null,
    number       integer not null,
    started_at   integer not null,
    took         integer not null,
    late         integer not null,
    -- 1 when somebody asked for it.
    manual       integer not null,
    status       integer,
    failure      text,
    detail       text,
    timings      text,
    response     blob
) strict;
insert into new_attempt (delivery, subscription, number, started_at, took, late, manual, status, failure, detail,
    timings, response)
select a.delivery, d.subscription, a.number, a.started_at, a.took, a.late, 0, a.status, a.failure, a.detail,
    a.timings, a.response
from attempt a cross join delivery d on d.seq = a.delivery
order by a.delivery, a.number, a.started_at;
drop table attempt;
alter table new_attempt rename to attempt;
create unique index attempt_of on attempt (delivery, number, started_at);

update delivery set outcome = (
    select outcome(a.status, a.failure) from attempt a
    where a.delivery = delivery.seq and a.late = 0 order by a.number desc limit 1)
where attempts > 0;

-- Numbers at or below these are not given out again, also after the last rows were pruned.
alter table store add column event_floor integer not null default 0;
alter table store add column attempt_floor integer not null default 0;

-- How many there are, changed in the transactions that change the rows.
create table tally (
    tenant    integer primary key,
    events    integer not null,
    pending   integer not null,
    delivered integer not null,
    dead      integer not null,
    cancelled integer not null
) strict;
insert into tally
select t.no,
    (select count(*) from event e where e.tenant = t.no),
    (select count(*) from delivery d where d.tenant = t.no and d.state < 2),
    (select count(*) from delivery d where d.tenant = t.no and d.state = 2),
    (select count(*) from delivery d where d.tenant = t.no and d.state between 10 and 19),
    (select count(*) from delivery d where d.tenant = t.no and d.state >= 20)
from tenant t;

-- Events with dead letters, and how many. Changed with the rows, like the tally.
create table dead_event (
    tenant  integer not null,
    event   integer not null,
    letters integer not null,
    primary key (tenant, event)
) strict, without rowid;
insert into dead_event
select tenant, event, count(*) from delivery where state between 10 and 19 group by tenant, event;

-- Neighbouring rows of a table (1 events, 2 deliveries, 3 attempts) whose postings are written.
create table block (
    list     integer not null,
    no       integer not null,
    -- The first and the last time in it.
    first_at integer not null,
    last_at  integer not null,
    -- 0: the postings are as the rows are. 1: outcomes may have changed. 2: states may. 4: rows are gone.
    stale    integer not null,
    primary key (list, no)
) strict, without rowid;
create index block_stale on block (list, no) where stale > 0;

-- Which rows of a block have something in common. Sorted by block first, so that writing one touches few pages.
create table posting (
    list   integer not null,
    block  integer not null,
    -- A tenant's number, or a subscription's with a minus.
    owner  integer not null,
    kind   integer not null,
    value  integer not null,
    places blob not null,
    primary key (list, block, owner, kind, value)
) strict, without rowid;

-- Lists go by the order of rows; nobody reads these by id any more.
drop index delivery_dead_by_id;
drop index delivery_by_id;
create unique index delivery_by_id on delivery (id);
create index delivery_in_flight on delivery (tenant) where state = 1;
