-- Clients of dialects, as far as they were made or changed at run time. Secrets are sealed before they
-- come here.
create table client (
    tenant uuid not null references tenant,
    name text not null,
    sealed_secret bytea,
    -- Null where the configuration says what the client may do.
    scopes text,
    updated_at bigint not null,
    version bigint not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    removed boolean not null default false,
    primary key (tenant, name)
);
create index client_version on client (version);
