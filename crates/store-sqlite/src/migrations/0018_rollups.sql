-- Figures of the past. What a node has counted of a scope in a minute; what is counted now is side by side.
create table rollup (
    at     integer not null,
    scope  text not null,
    node   blob not null check (length(node) = 16),
    -- The number of what it was written with.
    number integer not null,
    counts blob not null,
    primary key (at, scope, node)
) strict, without rowid;

-- The same by the hour, of all nodes together.
create table rollup_hour (
    at     integer not null,
    scope  text not null,
    counts blob not null,
    primary key (at, scope)
) strict, without rowid;

-- The last row of `rollup` that is in its hour. One row.
create table folded_rollup (
    one   integer primary key check (one = 0),
    at    integer not null,
    scope text not null,
    node  blob not null
) strict;
insert into folded_rollup values (0, 0, '', x'');
