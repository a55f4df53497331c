-- Before the status of a subscription changes: whoever goes on begins anew.
delete from failing
where subscription = $1
  and (select status <> '{"status":"active"}' from subscription where id = $1 limit 1)
