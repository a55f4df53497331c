-- Counts what was done to a delivery by hand, and how often another had to go before it: what was read
-- with a smaller number is out of date.
alter table delivery add column revival integer not null default 0;
-- While it is parked because another came back that goes before it: when it would be due.
alter table delivery add column held_until integer;

-- Deliveries whose copies in memory are out of date, by the catalog version that says so.
create table recall (
    no           integer primary key,
    version      integer not null,
    subscription blob not null,
    delivery     blob not null,
    revival      integer not null,
    at           integer not null
) strict;

create index recall_by_version on recall (version);
create index recall_by_age on recall (at);

-- Those that run are few, however many have ended.
create index redrive_running on redrive (id) where state = 0;
create index redrive_ended on redrive (finished_at) where state <> 0;
create index redrive_by_tenant on redrive (tenant, id);
