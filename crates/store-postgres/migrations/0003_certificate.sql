-- The registry of certificates. Keys are sealed before they come here.
create table certificate (
    tenant uuid not null references tenant,
    id uuid not null unique,
    kind text not null,
    description text not null,
    owner text not null,
    host text not null,
    scopes text not null,
    thumbprint bytea not null,
    subject text not null,
    pem text not null,
    sealed_key bytea,
    not_before bigint not null,
    not_after bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    revoked_at bigint,
    version bigint not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    removed boolean not null default false,
    primary key (tenant, id)
);
create index certificate_version on certificate (version);

-- A caller is told by its thumbprint, whichever tenant it belongs to.
create unique index certificate_caller on certificate (thumbprint)
    where kind = 'caller' and not removed;
