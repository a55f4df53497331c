-- The registry of certificates. Keys are sealed before they come here.
create table certificate (
    tenant      integer not null references tenant (no),
    id          blob not null unique check (length(id) = 16),
    kind        text not null,
    description text not null,
    owner       text not null,
    host        text not null,
    scopes      text not null,
    thumbprint  blob not null check (length(thumbprint) = 32),
    subject     text not null,
    pem         text not null,
    sealed_key  blob,
    not_before  integer not null,
    not_after   integer not null,
    created_at  integer not null,
    updated_at  integer not null,
    revoked_at  integer,
    version     integer not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    deleted     integer not null default 0,
    primary key (tenant, id)
) strict, without rowid;

-- A caller is told by its thumbprint, whichever tenant it belongs to.
create unique index certificate_caller on certificate (thumbprint)
    where kind = 'caller' and deleted = 0;
