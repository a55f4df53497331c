-- What was answered to requests that may be repeated, and who is at work on one. Rows come and go with requests, so they are
-- no entries of the catalog.
create table kept_answer (
    key blob primary key,
    -- What ids are made of: a time, and sixteen bytes.
    seed_at integer not null,
    seed blob not null,
    -- Who is at it, and until when, counted from when the file was opened; both null when nobody is.
    holder blob,
    until integer,
    expires_at integer not null,
    -- Null until there is an answer.
    status integer,
    body blob
) strict;

create index kept_answer_expiry on kept_answer (expires_at, key);
create index kept_answer_held on kept_answer (key) where until is not null;
