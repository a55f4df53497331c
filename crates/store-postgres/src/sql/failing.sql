select subscription, since, exhausted from failing where shard = any($1::int2[])
