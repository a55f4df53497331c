-- Every few seconds, for quotas. The whole of the tally, which has a few rows for each tenant.
select tenant, sum(pending)::int8 as number from tally group by tenant having sum(pending) > 0
