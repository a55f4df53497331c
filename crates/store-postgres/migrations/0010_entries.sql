-- The catalog as documents: one table for all that every node has in memory anyway. What other tables
-- refer to stays: tenants with their versions, and which subscriptions there are or were.
create table entry (
    kind text collate "C" not null,
    key text collate "C" not null,
    -- Null for keys of operators.
    tenant uuid references tenant,
    version bigint not null,
    -- What no other entry of its kind has; null when it has no such thing, and when it is gone.
    unique_key text collate "C",
    -- One that is gone leaves its line without anything secret, so that others learn of it.
    removed boolean not null,
    -- JSON, as the domain's types have it.
    document text not null,
    primary key (kind, key)
);
create index entry_version on entry (version);
create unique index entry_unique on entry (kind, unique_key) where unique_key is not null;
create index entry_of_operators on entry (kind) where tenant is null;

-- Values as the domain writes them in documents; only for this migration.

-- 128 bits in groups of five, rounded up.
create function typed(prefix text, id uuid) returns text language sql immutable strict as $$
    select prefix || '_' || string_agg(
        substr(
            '0123456789abcdefghjkmnpqrstvwxyz',
            substring(b'00' || ('x' || replace(id::text, '-', ''))::bit(128) from n * 5 + 1 for 5)
                ::bit(5)::int4 + 1,
            1
        ),
        '' order by n
    )
    from generate_series(0, 25) as n
$$;

create function moment(millis bigint) returns text language sql immutable strict as $$
    select to_char(
        timestamp '1970-01-01 00:00:00'
            + (least(millis, 253402300799999) / 86400000) * interval '1 day'
            + (least(millis, 253402300799999) % 86400000) * interval '1 millisecond',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
    )
$$;

create function base64(bytes bytea) returns text language sql immutable strict as $$
    select translate(encode(bytes, 'base64'), e'\n', '')
$$;

-- Sealed bytes were lists of numbers.
create function base64_of_list(list json) returns text language sql immutable strict as $$
    select base64(decode(coalesce(string_agg(lpad(to_hex(byte::int4), 2, '0'), '' order by n), ''), 'hex'))
    from json_array_elements_text(list) with ordinality as b(byte, n)
$$;

create function documents_of_secrets(secrets json) returns json language sql immutable strict as $$
    select coalesce(json_agg(json_build_object(
        'name', secret ->> 'name', 'sealed', base64_of_list(secret -> 'sealed'),
        'created_at', moment((secret ->> 'created_at')::int8),
        'expires_at', moment((secret ->> 'expires_at')::int8)
    ) order by n), '[]')
    from json_array_elements(secrets) with ordinality as s(secret, n)
$$;

insert into entry
select 'tenant', typed('ten', id), id, version, name, false, json_build_object(
    'id', typed('ten', id), 'name', name, 'created_at', moment(created_at))
from tenant;

insert into entry
select 'topic', typed('ten', tenant) || '/' || name, tenant, version, null, removed,
    json_build_object(
        'tenant', typed('ten', tenant), 'name', name, 'description', description,
        'attributes', attributes::json, 'labels', labels::json, 'created_at', moment(created_at))
from topic;

insert into entry
select 'subscription', typed('sub', id), tenant, version,
    case when deleted_at is null then typed('ten', tenant) || '/' || name end,
    deleted_at is not null,
    json_build_object(
        'id', typed('sub', id), 'tenant', typed('ten', tenant), 'name', name,
        'description', description, 'labels', labels::json, 'destination', destination::json,
        'filter', filter::json, 'profile', profile, 'overrides', overrides::json,
        'secrets', documents_of_secrets(secrets::json), 'status', status::json,
        'stops', stops::json, 'created_at', moment(created_at), 'updated_at', moment(updated_at),
        'version', version)
from subscription;

insert into entry
select 'profile', typed('ten', tenant) || '/' || name, tenant, version, null, removed,
    json_build_object(
        'tenant', typed('ten', tenant), 'name', name, 'base', base, 'policy', policy::json,
        'updated_at', moment(updated_at))
from profile;

insert into entry
select 'client', typed('ten', tenant) || '/' || name, tenant, version, null, removed,
    json_build_object(
        'tenant', typed('ten', tenant), 'name', name, 'sealed_secret', base64(sealed_secret),
        'scopes', scopes::json, 'updated_at', moment(updated_at), 'version', version)
from client;

insert into entry
select 'key', typed('key', id), tenant, version, null, false, json_build_object(
    'id', typed('key', id), 'tenant', typed('ten', tenant), 'description', description,
    'scopes', scopes::json, 'hash', base64(hash), 'created_at', moment(created_at),
    'expires_at', moment(expires_at), 'revoked_at', moment(revoked_at), 'rate_limit', rate_limit)
from api_key;

insert into entry
select 'certificate', typed('crt', id), tenant, version,
    case when kind = 'caller' and not removed then encode(thumbprint, 'hex') end, removed,
    json_build_object(
        'id', typed('crt', id), 'tenant', typed('ten', tenant), 'kind', kind,
        'description', description, 'owner', owner, 'host', host, 'scopes', scopes::json,
        'thumbprint', encode(thumbprint, 'hex'), 'subject', subject, 'pem', pem,
        'sealed_key', base64(sealed_key), 'not_before', moment(not_before),
        'not_after', moment(not_after), 'created_at', moment(created_at),
        'updated_at', moment(updated_at), 'revoked_at', moment(revoked_at), 'version', version)
from certificate;

drop function documents_of_secrets;
drop function base64_of_list;
drop function base64;
drop function moment;
drop function typed;

alter table key_use drop constraint key_use_key_fkey;
drop table topic, profile, client, api_key, certificate;
alter table subscription
    drop column name, drop column description, drop column labels, drop column destination,
    drop column filter, drop column profile, drop column overrides, drop column secrets,
    drop column status, drop column stops, drop column created_at, drop column updated_at,
    drop column version;
alter table tenant drop column name, drop column created_at;
drop index tenant_version;
