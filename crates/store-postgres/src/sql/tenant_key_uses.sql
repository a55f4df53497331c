-- Nobody needs to know when keys were used that are gone.
delete from key_use where key = any($1::uuid[])
