-- What was answered to requests that may be repeated, and who is at work on one. Rows come and go with requests, so they are
-- no entries of the catalog.
create table kept_answer (
    key bytea primary key,
    -- What ids are made of: a time, and sixteen bytes.
    seed_at int8 not null,
    seed uuid not null,
    -- Who is at it, and until when by the database's clock; both null when nobody is.
    holder uuid,
    until timestamptz,
    expires_at int8 not null,
    -- Null until there is an answer.
    status int4,
    body bytea
);

create index kept_answer_expiry on kept_answer (expires_at, key);
