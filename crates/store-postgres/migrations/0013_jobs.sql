-- Bulk work on the history.
create table job (
    id uuid primary key,
    tenant uuid not null,
    -- JSON: what it does.
    work text not null,
    per_second integer not null,
    -- 0 running, 1 done, 2 cancelled, 3 failed.
    state smallint not null,
    seen bigint not null,
    done bigint not null,
    -- The place of the last event that was looked at: its id.
    cursor uuid,
    created_by text not null,
    created_at bigint not null,
    finished_at bigint,
    problem text
);
create index job_tenant on job (tenant, id);
-- Those that run are few, however many have ended.
create index job_running on job (id) where state = 0;
create index job_ended on job (finished_at) where state <> 0;

-- A delivery that a job makes has the time of its event and an id of its own time: so much later, at most, in
-- milliseconds.
alter table skew add column later bigint not null default 0;
