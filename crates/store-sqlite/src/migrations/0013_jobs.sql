-- Bulk work on the history.
create table job (
    id          blob not null primary key check (length(id) = 16),
    tenant      integer not null references tenant (no),
    -- JSON: what it does.
    work        text not null,
    per_second  integer not null,
    -- 0 running, 1 done, 2 cancelled, 3 failed.
    state       integer not null,
    seen        integer not null,
    done        integer not null,
    -- The number of the last event that was looked at.
    cursor      integer,
    created_by  text not null,
    created_at  integer not null,
    finished_at integer,
    problem     text
) strict, without rowid;
create index job_running on job (id) where state = 0;
create index job_ended on job (finished_at) where state <> 0;
create index job_by_tenant on job (tenant, id);

-- Deliveries that were made later than their event, and so are not its neighbours.
create table later_delivery (
    event        integer not null,
    seq          integer not null,
    subscription integer not null,
    primary key (event, seq)
) strict, without rowid;
create unique index later_delivery_to on later_delivery (event, subscription);
