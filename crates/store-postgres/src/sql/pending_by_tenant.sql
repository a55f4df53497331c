-- Every few seconds, for quotas. The whole live table, which has only what is unfinished: its rows
-- are narrow and change all the time, so that an index would send the server to the rows anyway.
select tenant, count(*) as number from delivery_live group by tenant
