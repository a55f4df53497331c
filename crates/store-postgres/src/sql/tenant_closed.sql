-- Whether a tenant is being deleted, or was.
select closed from tenant where id = $1
