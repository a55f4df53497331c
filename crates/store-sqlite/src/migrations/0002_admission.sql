-- Requests per second a key may make; null: what the configuration says.
alter table api_key add column rate_limit integer;

-- When a key was last used. Apart from the key, so that writing it down is no change of the catalog.
create table key_use (
    key     blob not null primary key references api_key (id),
    used_at integer not null
) strict, without rowid;
