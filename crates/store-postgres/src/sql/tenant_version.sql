-- From now on plans for the tenant's events must be made on this version.
with moved as (
    update tenant set version = $2 where id = $1
)
update entry set version = $2 where kind = 'tenant' and key = $3
