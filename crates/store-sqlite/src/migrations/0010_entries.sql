-- The catalog as documents: one table for all that every node has in memory anyway. What other tables
-- refer to stays: the numbers of tenants and subscriptions, and when a subscription was deleted.
--
-- typed(prefix, id), moment(milliseconds) and base64(blob) write a value as the domain does; see migrate.rs.
create table entry (
    kind       text not null,
    key        text not null,
    -- Null for keys of operators.
    tenant     blob references tenant (id),
    version    integer not null,
    -- What no other entry of its kind has; null when it has no such thing, and when it is gone.
    unique_key text,
    -- One that is gone leaves its line without anything secret, so that others learn of it.
    removed    integer not null,
    -- JSON, as the domain's types have it.
    document   text not null,
    primary key (kind, key)
) strict;

create index entry_by_version on entry (version);
create unique index entry_unique on entry (kind, unique_key) where unique_key is not null;
create index entry_of_operators on entry (kind) where tenant is null;

insert into entry
select 'tenant', typed('ten', id), id, version, name, 0, json_object(
    'id', typed('ten', id), 'name', name, 'created_at', moment(created_at))
from tenant;

insert into entry
select 'topic', typed('ten', t.id) || '/' || o.name, t.id, o.version, null, o.deleted, json_object(
    'tenant', typed('ten', t.id), 'name', o.name, 'description', o.description,
    'attributes', json(o.attributes), 'labels', json(o.labels), 'created_at', moment(o.created_at))
from topic o join tenant t on t.no = o.tenant;

insert into entry
select 'subscription', typed('sub', o.id), t.id, o.version,
    iif(o.deleted_at is null, typed('ten', t.id) || '/' || o.name, null), o.deleted_at is not null,
    json_object(
        'id', typed('sub', o.id), 'tenant', typed('ten', t.id), 'name', o.name,
        'description', o.description, 'labels', json(o.labels),
        'destination', json(o.destination), 'filter', json(o.filter), 'profile', o.profile,
        'overrides', json(o.overrides),
        -- What comes out of a subquery is text again.
        'secrets', json((
            select json_group_array(json_object(
                'name', s.name, 'sealed', base64(s.sealed), 'created_at', moment(s.created_at),
                'expires_at', moment(s.expires_at)) order by s.position)
            from subscription_secret s where s.subscription = o.no)),
        'status', json(o.status), 'stops', json(o.stops), 'created_at', moment(o.created_at),
        'updated_at', moment(o.updated_at), 'version', o.version)
from subscription o join tenant t on t.no = o.tenant;

insert into entry
select 'profile', typed('ten', t.id) || '/' || o.name, t.id, o.version, null, o.deleted, json_object(
    'tenant', typed('ten', t.id), 'name', o.name, 'base', o.base, 'policy', json(o.policy),
    'updated_at', moment(o.updated_at))
from profile o join tenant t on t.no = o.tenant;

insert into entry
select 'client', typed('ten', t.id) || '/' || o.name, t.id, o.version, null, o.deleted, json_object(
    'tenant', typed('ten', t.id), 'name', o.name, 'sealed_secret', base64(o.sealed_secret),
    'scopes', json(o.scopes), 'updated_at', moment(o.updated_at), 'version', o.version)
from client o join tenant t on t.no = o.tenant;

insert into entry
select 'key', typed('key', o.id), t.id, o.version, null, 0, json_object(
    'id', typed('key', o.id), 'tenant', typed('ten', t.id), 'description', o.description,
    'scopes', json(o.scopes), 'hash', base64(o.hash), 'created_at', moment(o.created_at),
    'expires_at', moment(o.expires_at), 'revoked_at', moment(o.revoked_at),
    'rate_limit', o.rate_limit)
from api_key o left join tenant t on t.no = o.tenant;

insert into entry
select 'certificate', typed('crt', o.id), t.id, o.version,
    iif(o.kind = 'caller' and o.deleted = 0, lower(hex(o.thumbprint)), null), o.deleted,
    json_object(
        'id', typed('crt', o.id), 'tenant', typed('ten', t.id), 'kind', o.kind,
        'description', o.description, 'owner', o.owner, 'host', o.host, 'scopes', json(o.scopes),
        'thumbprint', lower(hex(o.thumbprint)), 'subject', o.subject, 'pem', o.pem,
        'sealed_key', base64(o.sealed_key), 'not_before', moment(o.not_before),
        'not_after', moment(o.not_after), 'created_at', moment(o.created_at),
        'updated_at', moment(o.updated_at), 'revoked_at', moment(o.revoked_at),
        'version', o.version)
from certificate o join tenant t on t.no = o.tenant;

create table new_key_use (
    key     blob not null primary key,
    used_at integer not null
) strict, without rowid;
insert into new_key_use select key, used_at from key_use;
drop table key_use;
alter table new_key_use rename to key_use;

drop table topic;
drop table subscription_secret;
drop table profile;
drop table client;
drop table api_key;
drop table certificate;

drop index subscription_name;
alter table subscription drop column name;
alter table subscription drop column description;
alter table subscription drop column labels;
alter table subscription drop column destination;
alter table subscription drop column filter;
alter table subscription drop column profile;
alter table subscription drop column overrides;
alter table subscription drop column status;
alter table subscription drop column stops;
alter table subscription drop column created_at;
alter table subscription drop column updated_at;
alter table subscription drop column version;

create table new_tenant (
    no integer primary key,
    id blob not null unique check (length(id) = 16)
) strict;
insert into new_tenant select no, id from tenant;
drop table tenant;
alter table new_tenant rename to tenant;
