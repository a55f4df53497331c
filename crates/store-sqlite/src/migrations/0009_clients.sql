-- Clients of dialects, as far as they were made or changed at run time. Secrets are sealed before they
-- come here.
create table client (
    tenant        integer not null references tenant (no),
    name          text not null,
    sealed_secret blob,
    -- Null where the configuration says what the client may do.
    scopes        text,
    updated_at    integer not null,
    version       integer not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    deleted       integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;
