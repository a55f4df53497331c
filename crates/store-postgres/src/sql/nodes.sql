select id, catalog from node where expires_at > clock_timestamp() order by id
