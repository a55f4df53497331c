-- The audit log: a line for each change that somebody asked for, written with the change and never changed. Lines are
-- in the order of their ids, which begin with the time. What can be asked for stands beside the line, with an index
-- for the whole log, for a tenant, and for a realm; changes are rare.
create table audit (
    id uuid primary key,
    tenant uuid,
    -- That of the tenant, or the one that the change is about.
    realm text collate "C",
    -- Who did it, by id; null for the server itself.
    actor text collate "C",
    action text collate "C" not null,
    -- The first word of the action.
    noun text collate "C" not null,
    -- What it was done to, by id.
    object text collate "C" not null,
    -- The whole line.
    document text not null
);

create index audit_object on audit (object, id);
create index audit_actor on audit (actor, id) where actor is not null;
create index audit_action on audit (action, id);
create index audit_noun on audit (noun, id);
create index audit_tenant on audit (tenant, id) where tenant is not null;
create index audit_tenant_object on audit (tenant, object, id) where tenant is not null;
create index audit_tenant_actor on audit (tenant, actor, id) where tenant is not null;
create index audit_tenant_action on audit (tenant, action, id) where tenant is not null;
create index audit_tenant_noun on audit (tenant, noun, id) where tenant is not null;
create index audit_realm on audit (realm, id) where realm is not null;
create index audit_realm_object on audit (realm, object, id) where realm is not null;
create index audit_realm_actor on audit (realm, actor, id) where realm is not null;
create index audit_realm_action on audit (realm, action, id) where realm is not null;
create index audit_realm_noun on audit (realm, noun, id) where realm is not null;
