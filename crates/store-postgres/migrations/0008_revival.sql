-- Counts what was done to a delivery by hand, and how often another had to go before it: what was read
-- with a smaller number is out of date.
alter table delivery_live add column revival integer not null default 0;
alter table delivery_done add column revival integer not null default 0;
-- While it is parked because another came back that goes before it: when it would be due.
alter table delivery_live add column held_until bigint;

-- Deliveries whose copies in memory are out of date, by the catalog version that says so.
create table recall (
    no bigint generated always as identity primary key,
    version bigint not null,
    subscription uuid not null,
    delivery uuid not null,
    revival integer not null,
    at bigint not null
);
create index recall_version on recall (version);
create index recall_at on recall (at);

-- Those that run are few, however many have ended.
create index redrive_running on redrive (id) where state = 0;
create index redrive_ended on redrive (finished_at) where state <> 0;
