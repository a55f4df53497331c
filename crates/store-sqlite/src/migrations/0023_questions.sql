-- The payload comes last: what stands behind a large value is reached only by going through it.
create table new_event (
    no           integer primary key,
    id           blob not null,
    tenant       integer not null,
    accepted_at  integer not null,
    -- The deliveries of an event are neighbours: first_seq .. first_seq + deliveries.
    first_seq    integer not null,
    deliveries   integer not null,
    topic        text not null,
    event_type   text not null,
    attributes   text,
    key          text,
    content_type text not null,
    publisher_id text,
    deliver_at   integer,
    retention    integer,
    expunged_at  integer,
    trace        blob,
    payload      blob not null
) strict;
insert into new_event (no, id, tenant, accepted_at, first_seq, deliveries, topic, event_type, attributes, key,
    content_type, publisher_id, deliver_at, retention, expunged_at, trace, payload)
select no, id, tenant, accepted_at, first_seq, deliveries, topic, event_type, attributes, key, content_type,
    publisher_id, deliver_at, retention, expunged_at, trace, payload
from event order by no;
drop table event;
alter table new_event rename to event;
create unique index event_by_id on event (tenant, id);

-- So that figures of a tenant can be removed with it. Rows are inserted once and then only replaced, which touches no
-- index. Every row fulfils the condition; who reads by time does not say it, and so is not tempted.
create index rollup_scope on rollup (scope) where scope > '';
create index rollup_hour_scope on rollup_hour (scope) where scope > '';

-- Before when history was removed for its age; nothing while nothing was.
alter table store add column pruned_before integer;
