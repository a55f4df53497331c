-- Whether a streak has lasted long enough to be told. Of those that lasted before, nobody was told.
alter table failing add column told boolean not null default false;
