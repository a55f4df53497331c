-- Names by which subscriptions are found, and labels that are only remembered.
alter table topic add column labels text not null default '{}';
alter table subscription add column labels text not null default '{}';
alter table subscription add column name text;
create unique index subscription_name on subscription (tenant, name)
    where name is not null and deleted_at is null;

-- Profiles that were made or changed at run time.
create table profile (
    tenant uuid not null references tenant,
    name text not null,
    base text not null,
    policy text not null,
    updated_at bigint not null,
    version bigint not null,
    -- One that is gone leaves its line, so that others learn of the removal.
    removed boolean not null default false,
    primary key (tenant, name)
);
create index profile_version on profile (version);
