-- Requests per second a key may make; null: what the configuration says.
alter table api_key add column rate_limit integer;

-- When a key was last used. Apart from the key, so that writing it down is no change of the catalog.
create table key_use (
    key uuid primary key references api_key,
    used_at bigint not null
);

-- Secrets of those who left never sign again; until now they stayed in the row.
update subscription set secrets = '[]' where deleted_at is not null and secrets <> '[]';
