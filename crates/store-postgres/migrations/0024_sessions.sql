-- Sessions of pages, and links into the portal. They come and go by the thousand, so they are no entries of the
-- catalog: no version moves, and nothing is left of one that has ended. What is looked up by stands beside the
-- document.
create table page_session (
    id uuid primary key,
    kind text collate "C" not null,
    -- Whose it is; both null for operators.
    tenant uuid,
    realm text collate "C",
    -- The key that it stands and falls with.
    key uuid,
    label text collate "C",
    expires_at int8 not null,
    document text not null
);

create index page_session_tenant on page_session (tenant, id) where tenant is not null;
create index page_session_realm on page_session (realm, id) where realm is not null;
create index page_session_key on page_session (key) where key is not null;
create index page_session_label on page_session (tenant, label) where label is not null;
create index page_session_expiry on page_session (expires_at, id);
