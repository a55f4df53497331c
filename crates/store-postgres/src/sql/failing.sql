select subscription, since, exhausted, told from failing where shard = any($1::int2[])
