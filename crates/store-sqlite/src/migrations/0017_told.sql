-- Whether a streak has lasted long enough to be told. Of those that lasted before, nobody was told.
alter table failing add column told integer not null default 0;
