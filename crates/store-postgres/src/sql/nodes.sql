-- Those that were lost are forgotten a day later, with a heartbeat.
select id, catalog, expires_at > clock_timestamp() as alive from node order by id
