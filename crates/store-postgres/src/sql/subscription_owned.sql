-- A subscription of a tenant, also a deleted one. Plan: primary keys.
select exists (select from subscription_gone g where g.id = s.id) as gone
from subscription s
where s.id = $1 and s.tenant = $2
