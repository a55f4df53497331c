-- Realms with what they own, and tenants that are deleted.

alter table entry
    -- Another text that no other entry of its kind has: the external id of a tenant.
    add column alias text collate "C",
    -- The realm that cannot go while the entry is there. Null in the default realm, which never goes.
    add column realm text collate "C";

create unique index entry_alias on entry (kind, alias) where alias is not null;
create index entry_in_realm on entry (realm) where realm is not null;
create index entry_of_tenant on entry (tenant, kind, key) where tenant is not null;
create index subscription_of_tenant on subscription (tenant, id) where deleted_at is null;

-- From the moment that a tenant is to be deleted; its line stays for ever.
alter table tenant add column closed boolean not null default false;
