-- Its version comes with the change that makes it.
insert into tenant (id, version) values ($1, 0)
