-- Events that are to be delivered later, and events that are kept for a shorter time than others. Null for
-- nearly all of them.
alter table event add column deliver_at integer;
-- Milliseconds.
alter table event add column retention integer;

-- Deliveries that have not entered their lane yet: when, and which. Until then the row of the delivery is
-- pending, due never, and has no lane. Ends in seq by itself: those of one time in commit order.
create table scheduled (
    seq  integer primary key,
    at   integer not null,
    lane text not null
) strict;
create index scheduled_by_time on scheduled (at);

-- When to look whether an event with a retention of its own can go.
create table expiry (
    event integer primary key,
    at    integer not null
) strict;
create index expiry_by_time on expiry (at);
