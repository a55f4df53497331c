insert into audit (id, tenant, realm, actor, action, noun, object, document)
values ($1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text)
