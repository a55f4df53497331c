-- From now on nothing is accepted for the tenant.
update tenant set closed = true where id = $1
