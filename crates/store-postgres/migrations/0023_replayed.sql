-- Which tenants have deliveries that a job made: they have the times of their events and ids of their own time. How much
-- later that was at most, and when the last one was made, or a little more; in milliseconds. So only lists of these tenants
-- look beyond a period, and only so far.
create table replayed (
    tenant uuid primary key,
    later bigint not null,
    last bigint not null
);
insert into replayed (tenant, later, last)
select t.id, s.later, (extract(epoch from clock_timestamp()) * 1000)::bigint
from tenant t cross join skew s
where s.later > 0;
alter table skew drop column later;
