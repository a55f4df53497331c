insert into recall (version, subscription, delivery, revival, at)
select $1::int8, r.subscription, r.delivery, r.revival, $5::int8
from unnest($2::uuid[], $3::uuid[], $4::int4[]) with ordinality
    as r(subscription, delivery, revival, item)
order by r.item
