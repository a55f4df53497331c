-- Realms with what they own, and tenants that are deleted.

-- Another text that no other entry of its kind has: the external id of a tenant.
alter table entry add column alias text;
-- The realm that cannot go while the entry is there. Null in the default realm, which never goes.
alter table entry add column realm text;

create unique index entry_alias on entry (kind, alias) where alias is not null;
create index entry_in_realm on entry (realm) where realm is not null;
create index entry_of_tenant on entry (tenant);
create index subscription_of_tenant on subscription (tenant);

-- 1 from the moment that a tenant is to be deleted; its line stays for ever.
alter table tenant add column closed integer not null default 0;
