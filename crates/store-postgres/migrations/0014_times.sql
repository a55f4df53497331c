-- Events that are to be delivered later, and events that are kept for a shorter time than others. Null for
-- nearly all of them.
alter table event
    add column deliver_at bigint,
    -- Milliseconds.
    add column retention bigint;

-- Deliveries that have not entered their lane yet: when, and which. Until then the live row is due never and
-- has no lane.
create table scheduled (
    delivery uuid primary key,
    subscription uuid not null,
    at bigint not null,
    -- Its place in commit order, for those of one time.
    seq bigint not null,
    lane_slot smallint not null,
    lane text collate "C" not null
);
create index scheduled_time on scheduled (at, seq);

-- When to look whether an event with a retention of its own can go.
create table expiry (
    tenant uuid not null,
    event uuid not null,
    at bigint not null,
    primary key (tenant, event)
);
create index expiry_time on expiry (at);
