-- A subscription that goes on begins anew.
delete from failing where subscription = $1
