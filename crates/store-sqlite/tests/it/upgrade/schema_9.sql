PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE migration (version integer primary key, checksum text not null, applied_at integer not null) strict;
INSERT INTO migration VALUES(1,'27a36f51655ba65b94b5dbbb8dd6bd557c8195daf76053bd3a76562b5255d5de',1794810615724);
INSERT INTO migration VALUES(2,'9821d4ae73168e7e41ed5c2a743993459c2d096e64ea1403195d28a8841604eb',1794810615732);
INSERT INTO migration VALUES(3,'03f627c53687d3952a2060f92f0dbc593c639f7d38467a3302af39076be2e25b',1794810615736);
INSERT INTO migration VALUES(4,'5f3847ee92505206096ddf190a2c456e09b241400194305801ad80e4527e2d42',1794810615739);
INSERT INTO migration VALUES(5,'abae995e798d8b3a7ee8f7316c6bf65783c2a47c4b1e5e6c0a9d1583e59e2a08',1794810615743);
INSERT INTO migration VALUES(6,'0f4eac5c184b1971c75f510151592c829eafaff89c0da608abe464caf1778416',1794810615744);
INSERT INTO migration VALUES(7,'3b857af31b785f972470aaeb8d1417b657c07ed2e840b383fdd378b5568f96b6',1794810615748);
INSERT INTO migration VALUES(8,'02be3da92ee9b68c86894644dbc02ae6a3df8f829edaae19345f791b8e75e59f',1794810615753);
INSERT INTO migration VALUES(9,'3ee8f41144f6e04d23082eb29a86cbf24792f4be6e103c2878d843173c5f0dcf',1794810615754);
CREATE TABLE store (
    one             integer primary key check (one = 1),
    -- The version of the last change of the catalog.
    catalog_version integer not null,
    -- No delivery gets a seq at or below this again, also after the last ones were pruned.
    seq_floor       integer not null
) strict;
INSERT INTO store VALUES(1,52,21);
CREATE TABLE tenant (
    no         integer primary key,
    id         blob not null unique check (length(id) = 16),
    name       text not null unique,
    created_at integer not null,
    version    integer not null
) strict;
INSERT INTO tenant VALUES(1,X'00000000000000000000000000000000','default',0,1);
INSERT INTO tenant VALUES(2,X'018bcfe5680070008000000000000001','acme',1700000000001,52);
INSERT INTO tenant VALUES(3,X'018bcfe5680070008000000000000002','other é',1700000000001,40);
CREATE TABLE topic (
    tenant      integer not null references tenant (no),
    name        text not null,
    description text not null,
    attributes  text not null,
    created_at  integer not null,
    version     integer not null,
    -- A topic that is gone leaves its line, so that others learn of the removal.
    deleted     integer not null default 0, labels text not null default '{}',
    primary key (tenant, name)
) strict, without rowid;
INSERT INTO topic VALUES(2,'gone','about gone','["colour"]',1700000000000,9,1,'{"link":"https://example.test/"}');
INSERT INTO topic VALUES(2,'orders','about orders','["colour","size"]',1700000000000,5,0,'{"link":"https://example.test/"}');
INSERT INTO topic VALUES(3,'orders/eu:1.x','about orders/eu:1.x','["colour"]',1700000000000,7,0,'{}');
CREATE TABLE subscription (
    -- 64 × n + shard: a write can check the shard of a delivery without looking here.
    no          integer primary key,
    id          blob not null unique check (length(id) = 16),
    tenant      integer not null references tenant (no),
    description text not null,
    destination text not null,
    filter      text not null,
    profile     text not null,
    overrides   text not null,
    status      text not null,
    created_at  integer not null,
    updated_at  integer not null,
    version     integer not null,
    deleted_at  integer,
    -- 1 when no unfinished delivery of a deleted subscription is left.
    swept       integer not null default 0
, labels text not null default '{}', name text, stops text not null default '[]') strict;
INSERT INTO subscription VALUES(75,X'018bcfe568007000800000000000000b',2,replace('number 11, with a "quote" and a \ and\na line','\n',char(10)),'{"kind":"webhook","url":"https://example.test/11?a=b"}','{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}','patient','{"schedule":{"max_attempts":3},"spacing":null}','{"status":"active"}',1700000000000,1700000000005,32,NULL,0,'{"country":"DE","note":"📯"}','name é 11','[]');
INSERT INTO subscription VALUES(140,X'018bcfe568007000800000000000000c',2,'','{"kind":"webhook","url":"https://plain.test/12"}','{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}','default','null','{"status":"active"}',1700000000000,1700000000000,34,NULL,0,'{}',NULL,'[]');
INSERT INTO subscription VALUES(205,X'018bcfe568007000800000000000000d',2,replace('number 13, with a "quote" and a \ and\na line','\n',char(10)),'{"kind":"webhook","url":"https://example.test/13?a=b"}','{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}','patient','{"schedule":{"max_attempts":3},"spacing":null}','{"status":"disabled","reason":"it answered 410 – \"gone\""}',1700000000000,1700000000005,36,NULL,0,'{"country":"DE","note":"📯"}','name é 13','[[1700000000010,1700000000020],[1700000000030,null]]');
INSERT INTO subscription VALUES(270,X'018bcfe568007000800000000000000e',2,'','{"kind":"push","agent":"00000000000040008000000000000001","channel":"00000000-0000-4000-8000-000000000002","p256dh":"BPublic","ttl":60}','{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}','default','null','{"status":"active"}',1700000000000,1700000000000,38,NULL,0,'{}',NULL,'[]');
INSERT INTO subscription VALUES(337,X'018bcfe5680070008000000000000011',3,'','{"kind":"webhook","url":"https://plain.test/17"}','{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}','default','null','{"status":"active"}',1700000000000,1700000000000,40,NULL,0,'{}','name é 11','[]');
INSERT INTO subscription VALUES(402,X'018bcfe5680070008000000000000012',2,replace('number 18, with a "quote" and a \ and\na line','\n',char(10)),'{"kind":"webhook","url":"https://example.test/18?a=b"}','{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}','patient','{"schedule":{"max_attempts":3},"spacing":null}','{"status":"paused"}',1700000000000,1700000000005,42,NULL,0,'{"country":"DE","note":"📯"}','name é 18','[[1700000000010,1700000000020],[1700000000030,null]]');
INSERT INTO subscription VALUES(463,X'018bcfe568007000800000000000000f',2,replace('number 15, with a "quote" and a \ and\na line','\n',char(10)),'{"kind":"webhook","url":"https://example.test/15?a=b"}','{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}','patient','{"schedule":{"max_attempts":3},"spacing":null}','{"status":"active"}',1700000000000,1700000000005,51,1700000000240,1,'{"country":"DE","note":"📯"}','name é 15','[]');
INSERT INTO subscription VALUES(528,X'018bcfe5680070008000000000000010',2,replace('number 16, with a "quote" and a \ and\na line','\n',char(10)),'{"kind":"webhook","url":"https://example.test/16?a=b"}','{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}','patient','{"schedule":{"max_attempts":3},"spacing":null}','{"status":"active"}',1700000000000,1700000000005,52,1700000000242,0,'{"country":"DE","note":"📯"}',NULL,'[]');
CREATE TABLE subscription_secret (
    subscription integer not null references subscription (no),
    position     integer not null,
    name         text not null,
    sealed       blob not null,
    created_at   integer not null,
    expires_at   integer,
    primary key (subscription, position)
) strict, without rowid;
INSERT INTO subscription_secret VALUES(75,0,'signing',X'00ff0180',1700000000001,1700000090000);
INSERT INTO subscription_secret VALUES(75,1,'signing',X'006e65776572',1700000000002,NULL);
INSERT INTO subscription_secret VALUES(75,2,'token',X'',1700000000003,NULL);
CREATE TABLE api_key (
    id          blob not null primary key check (length(id) = 16),
    tenant      integer references tenant (no),
    description text not null,
    scopes      text not null,
    hash        blob not null check (length(hash) = 32),
    created_at  integer not null,
    expires_at  integer,
    revoked_at  integer,
    version     integer not null
, rate_limit integer) strict, without rowid;
INSERT INTO api_key VALUES(X'018bcfe5680070008000000000000001',NULL,'key 1','["operator"]',X'a5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba',1700000000000,NULL,NULL,17,NULL);
INSERT INTO api_key VALUES(X'018bcfe5680070008000000000000002',NULL,'key 2','["operator"]',X'a5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba',1700000000000,1700000000002,NULL,18,250);
INSERT INTO api_key VALUES(X'018bcfe5680070008000000000000003',2,'key 3','["publish","subscriptions"]',X'a5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba',1700000000000,1700001000000,NULL,19,250);
INSERT INTO api_key VALUES(X'018bcfe5680070008000000000000004',2,'key 4','["publish","read"]',X'a5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba',1700000000000,NULL,1700000000060,21,250);
INSERT INTO api_key VALUES(X'018bcfe5680070008000000000000005',3,'key 5','[]',X'a5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba',1700000000000,1700001000000,NULL,22,250);
CREATE TABLE event (
    no           integer primary key,
    id           blob not null,
    tenant       integer not null,
    accepted_at  integer not null,
    -- The deliveries of an event are neighbours: first_seq .. first_seq + deliveries.
    first_seq    integer not null,
    deliveries   integer not null,
    topic        text not null,
    event_type   text not null,
    attributes   text,
    key          text,
    content_type text not null,
    payload      blob not null
) strict;
INSERT INTO event VALUES(1,X'018bcfe5680070008000000000000065',2,1700000000100,1,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130317d');
INSERT INTO event VALUES(2,X'018bcfe5680070008000000000000066',2,1700000000100,2,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130327d');
INSERT INTO event VALUES(3,X'018bcfe5680070008000000000000067',2,1700000000100,3,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130337d');
INSERT INTO event VALUES(4,X'018bcfe5680070008000000000000068',2,1700000000100,4,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130347d');
INSERT INTO event VALUES(5,X'018bcfe5680070008000000000000069',2,1700000000100,5,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130357d');
INSERT INTO event VALUES(6,X'018bcfe568007000800000000000006a',2,1700000000100,6,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130367d');
INSERT INTO event VALUES(7,X'018bcfe568007000800000000000006b',2,1700000000100,7,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130377d');
INSERT INTO event VALUES(8,X'018bcfe568007000800000000000006c',2,1700000000100,8,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130387d');
INSERT INTO event VALUES(9,X'018bcfe568007000800000000000006d',2,1700000000100,9,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3130397d');
INSERT INTO event VALUES(10,X'018bcfe568007000800000000000006e',2,1700000000100,10,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131307d');
INSERT INTO event VALUES(11,X'018bcfe568007000800000000000006f',2,1700000000100,11,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131317d');
INSERT INTO event VALUES(12,X'018bcfe5680070008000000000000070',2,1700000000100,12,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131327d');
INSERT INTO event VALUES(13,X'018bcfe5680070008000000000000071',2,1700000000100,13,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131337d');
INSERT INTO event VALUES(14,X'018bcfe5680070008000000000000072',2,1700000000100,14,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131347d');
INSERT INTO event VALUES(15,X'018bcfe5680070008000000000000073',2,1700000000100,15,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131357d');
INSERT INTO event VALUES(16,X'018bcfe5680070008000000000000074',2,1700000000100,16,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131367d');
INSERT INTO event VALUES(17,X'018bcfe5680070008000000000000075',2,1700000000100,17,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131377d');
INSERT INTO event VALUES(18,X'018bcfe5680070008000000000000076',2,1700000000100,18,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131387d');
INSERT INTO event VALUES(19,X'018bcfe5680070008000000000000077',2,1700000000100,19,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3131397d');
INSERT INTO event VALUES(20,X'018bcfe5680070008000000000000078',2,1700000000100,20,0,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3132307d');
INSERT INTO event VALUES(21,X'018bcfe5680070008000000000000079',3,1700000000100,20,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3132317d');
INSERT INTO event VALUES(22,X'018bcfe568007000800000000000007a',3,1700000000100,21,1,'orders','order.created','{"colour":"red é"}',NULL,'application/json',X'7b226e756d626572223a3132327d');
CREATE TABLE idempotency (
    tenant      integer not null,
    key         text not null,
    fingerprint blob not null,
    event       blob not null,
    accepted_at integer not null,
    primary key (tenant, key)
) strict, without rowid;
INSERT INTO idempotency VALUES(2,'key 101',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000065',1700000000100);
INSERT INTO idempotency VALUES(2,'key 102',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000066',1700000000100);
INSERT INTO idempotency VALUES(2,'key 103',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000067',1700000000100);
INSERT INTO idempotency VALUES(2,'key 104',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000068',1700000000100);
INSERT INTO idempotency VALUES(2,'key 105',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000069',1700000000100);
INSERT INTO idempotency VALUES(2,'key 106',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006a',1700000000100);
INSERT INTO idempotency VALUES(2,'key 107',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006b',1700000000100);
INSERT INTO idempotency VALUES(2,'key 108',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006c',1700000000100);
INSERT INTO idempotency VALUES(2,'key 109',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006d',1700000000100);
INSERT INTO idempotency VALUES(2,'key 110',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006e',1700000000100);
INSERT INTO idempotency VALUES(2,'key 111',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000006f',1700000000100);
INSERT INTO idempotency VALUES(2,'key 112',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000070',1700000000100);
INSERT INTO idempotency VALUES(2,'key 113',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000071',1700000000100);
INSERT INTO idempotency VALUES(2,'key 114',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000072',1700000000100);
INSERT INTO idempotency VALUES(2,'key 115',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000073',1700000000100);
INSERT INTO idempotency VALUES(2,'key 116',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000074',1700000000100);
INSERT INTO idempotency VALUES(2,'key 117',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000075',1700000000100);
INSERT INTO idempotency VALUES(2,'key 118',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000076',1700000000100);
INSERT INTO idempotency VALUES(2,'key 119',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000077',1700000000100);
INSERT INTO idempotency VALUES(2,'key 120',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000078',1700000000100);
INSERT INTO idempotency VALUES(3,'key 121',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe5680070008000000000000079',1700000000100);
INSERT INTO idempotency VALUES(3,'key 122',X'0101010101010101010101010101010101010101010101010101010101010101',X'018bcfe568007000800000000000007a',1700000000100);
CREATE TABLE delivery (
    seq          integer primary key,
    id           blob not null,
    event        integer not null,
    tenant       integer not null,
    subscription integer not null,
    -- 0 pending, 1 in flight, 2 delivered, 10-13 dead, 20-22 cancelled.
    state        integer not null,
    due_at       integer not null,
    attempts     integer not null,
    budget_base  integer not null,
    -- Null: when its event was accepted.
    budget_began integer,
    ended_at     integer,
    -- Null: no order; empty: the whole subscription.
    lane         text,
    -- 1 while it is unfinished in a lane, or dead and blocking it; else null.
    holds_lane   integer
, revival integer not null default 0, held_until integer) strict;
INSERT INTO delivery VALUES(1,X'018bcfe5680070008000000000000065',1,2,75,2,9223372036854775807,1,0,NULL,1700000000200,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(2,X'018bcfe5680070008000000000000066',2,2,75,0,1700000000250,2,2,1700000000250,NULL,NULL,NULL,1,NULL);
INSERT INTO delivery VALUES(3,X'018bcfe5680070008000000000000067',3,2,75,0,1700000900001,2,0,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(4,X'018bcfe5680070008000000000000068',4,2,140,0,1700000000100,0,0,NULL,NULL,'waits',1,0,NULL);
INSERT INTO delivery VALUES(5,X'018bcfe5680070008000000000000069',5,2,140,0,9223372036854775807,0,0,NULL,NULL,'waits',1,0,NULL);
INSERT INTO delivery VALUES(6,X'018bcfe568007000800000000000006a',6,2,140,10,9223372036854775807,1,0,NULL,1700000000203,'blocked',1,0,NULL);
INSERT INTO delivery VALUES(7,X'018bcfe568007000800000000000006b',7,2,140,0,9223372036854775807,0,0,NULL,NULL,'blocked',1,0,NULL);
INSERT INTO delivery VALUES(8,X'018bcfe568007000800000000000006c',8,2,140,0,1700000000223,1,1,1700000000223,NULL,'displaced',1,1,NULL);
INSERT INTO delivery VALUES(9,X'018bcfe568007000800000000000006d',9,2,140,0,9223372036854775807,0,0,NULL,NULL,'displaced',1,1,1700000000204);
INSERT INTO delivery VALUES(10,X'018bcfe568007000800000000000006e',10,2,140,1,1700000999000,0,0,NULL,NULL,'',1,0,NULL);
INSERT INTO delivery VALUES(11,X'018bcfe568007000800000000000006f',11,2,463,20,9223372036854775807,0,0,NULL,1700000000241,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(12,X'018bcfe5680070008000000000000070',12,2,75,10,9223372036854775807,1,0,NULL,1700000000210,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(13,X'018bcfe5680070008000000000000071',13,2,75,10,9223372036854775807,1,0,NULL,1700000000211,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(14,X'018bcfe5680070008000000000000072',14,2,75,21,9223372036854775807,0,0,NULL,1700000000220,NULL,NULL,1,NULL);
INSERT INTO delivery VALUES(15,X'018bcfe5680070008000000000000073',15,2,75,0,1700000000221,0,0,1700000000221,NULL,NULL,NULL,1,NULL);
INSERT INTO delivery VALUES(17,X'018bcfe5680070008000000000000075',17,2,528,0,1700000000100,0,0,NULL,NULL,'left',1,0,NULL);
INSERT INTO delivery VALUES(18,X'018bcfe5680070008000000000000076',18,2,528,0,9223372036854775807,0,0,NULL,NULL,'left',1,0,NULL);
INSERT INTO delivery VALUES(19,X'018bcfe5680070008000000000000077',19,2,270,2,9223372036854775807,1,0,NULL,1700000000205,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(20,X'018bcfe5680070008000000000000079',21,3,337,2,9223372036854775807,1,0,NULL,1700000000206,NULL,NULL,0,NULL);
INSERT INTO delivery VALUES(21,X'018bcfe568007000800000000000007a',22,3,337,0,1700000000100,0,0,NULL,NULL,NULL,NULL,0,NULL);
CREATE TABLE attempt (
    delivery   integer not null,
    number     integer not null,
    started_at integer not null,
    took       integer not null,
    late       integer not null,
    status     integer,
    failure    text,
    detail     text,
    response   blob,
    primary key (delivery, number, started_at)
) strict, without rowid;
INSERT INTO attempt VALUES(1,1,1700000000001,12,0,204,NULL,'told é',X'00616e73776572');
INSERT INTO attempt VALUES(2,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(2,2,1700000000002,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(3,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(3,2,1700000000002,12,0,200,NULL,NULL,NULL);
INSERT INTO attempt VALUES(6,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(8,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(12,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(13,1,1700000000001,12,0,NULL,'response_timeout','told é',X'00616e73776572');
INSERT INTO attempt VALUES(19,1,1700000000001,12,0,204,NULL,'told é',X'00616e73776572');
INSERT INTO attempt VALUES(20,1,1700000000001,12,0,204,NULL,'told é',X'00616e73776572');
CREATE TABLE redrive (
    id          blob not null primary key check (length(id) = 16),
    tenant      integer not null references tenant (no),
    filter      text not null,
    per_second  integer not null,
    state       integer not null,
    total       integer not null,
    moved       integer not null,
    -- The seq of the last dead letter that was looked at.
    cursor      integer not null,
    created_at  integer not null,
    finished_at integer
) strict, without rowid;
INSERT INTO redrive VALUES(X'018bcfe5680070008000000000000001',2,'{"subscription":"sub_01hf7yat00e00800000000000b","until":"2023-11-14T22:13:25.000Z"}',100,0,3,1,2,1700000000000,NULL);
INSERT INTO redrive VALUES(X'018bcfe5680070008000000000000002',2,'{"until":"2023-11-14T22:13:25.000Z"}',100,2,3,0,0,1700000000000,1700000000251);
INSERT INTO redrive VALUES(X'018bcfe5680070008000000000000003',2,'{"subscription":"sub_01hf7yat00e00800000000000e","until":"2023-11-14T22:13:25.000Z"}',100,1,0,0,0,1700000000000,1700000000252);
CREATE TABLE shard (
    number integer primary key,
    epoch  integer not null
) strict;
INSERT INTO shard VALUES(0,1);
INSERT INTO shard VALUES(1,1);
INSERT INTO shard VALUES(2,1);
INSERT INTO shard VALUES(3,1);
INSERT INTO shard VALUES(4,1);
INSERT INTO shard VALUES(5,1);
INSERT INTO shard VALUES(6,1);
INSERT INTO shard VALUES(7,1);
INSERT INTO shard VALUES(8,1);
INSERT INTO shard VALUES(9,1);
INSERT INTO shard VALUES(10,1);
INSERT INTO shard VALUES(11,1);
INSERT INTO shard VALUES(12,1);
INSERT INTO shard VALUES(13,1);
INSERT INTO shard VALUES(14,1);
INSERT INTO shard VALUES(15,1);
INSERT INTO shard VALUES(16,1);
INSERT INTO shard VALUES(17,1);
INSERT INTO shard VALUES(18,1);
INSERT INTO shard VALUES(19,1);
INSERT INTO shard VALUES(20,1);
INSERT INTO shard VALUES(21,1);
INSERT INTO shard VALUES(22,1);
INSERT INTO shard VALUES(23,1);
INSERT INTO shard VALUES(24,1);
INSERT INTO shard VALUES(25,1);
INSERT INTO shard VALUES(26,1);
INSERT INTO shard VALUES(27,1);
INSERT INTO shard VALUES(28,1);
INSERT INTO shard VALUES(29,1);
INSERT INTO shard VALUES(30,1);
INSERT INTO shard VALUES(31,1);
INSERT INTO shard VALUES(32,1);
INSERT INTO shard VALUES(33,1);
INSERT INTO shard VALUES(34,1);
INSERT INTO shard VALUES(35,1);
INSERT INTO shard VALUES(36,1);
INSERT INTO shard VALUES(37,1);
INSERT INTO shard VALUES(38,1);
INSERT INTO shard VALUES(39,1);
INSERT INTO shard VALUES(40,1);
INSERT INTO shard VALUES(41,1);
INSERT INTO shard VALUES(42,1);
INSERT INTO shard VALUES(43,1);
INSERT INTO shard VALUES(44,1);
INSERT INTO shard VALUES(45,1);
INSERT INTO shard VALUES(46,1);
INSERT INTO shard VALUES(47,1);
INSERT INTO shard VALUES(48,1);
INSERT INTO shard VALUES(49,1);
INSERT INTO shard VALUES(50,1);
INSERT INTO shard VALUES(51,1);
INSERT INTO shard VALUES(52,1);
INSERT INTO shard VALUES(53,1);
INSERT INTO shard VALUES(54,1);
INSERT INTO shard VALUES(55,1);
INSERT INTO shard VALUES(56,1);
INSERT INTO shard VALUES(57,1);
INSERT INTO shard VALUES(58,1);
INSERT INTO shard VALUES(59,1);
INSERT INTO shard VALUES(60,1);
INSERT INTO shard VALUES(61,1);
INSERT INTO shard VALUES(62,1);
INSERT INTO shard VALUES(63,1);
CREATE TABLE key_use (
    key     blob not null primary key references api_key (id),
    used_at integer not null
) strict, without rowid;
INSERT INTO key_use VALUES(X'018bcfe5680070008000000000000001',1700000000000);
INSERT INTO key_use VALUES(X'018bcfe5680070008000000000000002',1700000000000);
INSERT INTO key_use VALUES(X'018bcfe5680070008000000000000003',1700000000000);
CREATE TABLE certificate (
    tenant      integer not null references tenant (no),
    id          blob not null unique check (length(id) = 16),
    kind        text not null,
    description text not null,
    owner       text not null,
    host        text not null,
    scopes      text not null,
    thumbprint  blob not null check (length(thumbprint) = 32),
    subject     text not null,
    pem         text not null,
    sealed_key  blob,
    not_before  integer not null,
    not_after   integer not null,
    created_at  integer not null,
    updated_at  integer not null,
    revoked_at  integer,
    version     integer not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    deleted     integer not null default 0,
    primary key (tenant, id)
) strict, without rowid;
INSERT INTO certificate VALUES(2,X'018bcfe5680070008000000000000001','client','a certificate','DE','receiver.example','["read"]',X'0101010101010101010101010101010101010101010101010101010101010101','CN=receiver, C=DE',replace('-----BEGIN CERTIFICATE-----\n1\n','\n',char(10)),X'00ff01',1699999999995,1700000005000,1700000000000,1700000000000,NULL,24,0);
INSERT INTO certificate VALUES(2,X'018bcfe5680070008000000000000003','authority','a certificate','','receiver.example','[]',X'0303030303030303030303030303030303030303030303030303030303030303','CN=receiver, C=DE','first',X'00ff01',1699999999995,1700000005000,1700000000000,1700000000000,1700000000070,28,0);
INSERT INTO certificate VALUES(2,X'018bcfe5680070008000000000000004','caller','','DE','receiver.example','["read"]',X'0404040404040404040404040404040404040404040404040404040404040404','','',NULL,1699999999995,1700000005000,1700000000000,1700000000000,NULL,30,1);
INSERT INTO certificate VALUES(3,X'018bcfe5680070008000000000000002','caller','a certificate','DE','receiver.example','["read"]',X'0202020202020202020202020202020202020202020202020202020202020202','CN=receiver, C=DE',replace('-----BEGIN CERTIFICATE-----\n2\n','\n',char(10)),NULL,1699999999995,1700000005000,1700000000000,1700000000000,NULL,26,0);
CREATE TABLE profile (
    tenant     integer not null references tenant (no),
    name       text not null,
    base       text not null,
    policy     text not null,
    updated_at integer not null,
    version    integer not null,
    -- One that is gone leaves its line, so that others learn of the removal.
    deleted    integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;
INSERT INTO profile VALUES(2,'gone','default','{"schedule":{"max_attempts":3},"spacing":null}',1700000000004,12,1);
INSERT INTO profile VALUES(2,'patient','default','{"schedule":{"max_attempts":3},"spacing":null}',1700000000004,10,0);
CREATE TABLE push_agent (
    no           integer primary key,
    id           blob not null unique,
    -- The node it is connected to, as far as anybody knows.
    node         text,
    -- Of the last connection, also when the node is off the record.
    connected_at integer not null,
    created_at   integer not null,
    seen_at      integer not null
) strict;
CREATE TABLE push_channel (
    agent      integer not null,
    id         blob not null,
    key_hash   blob,
    created_at integer not null,
    primary key (agent, id)
) strict, without rowid;
CREATE TABLE push_message (
    -- Never given out twice, whatever was deleted: readers go on after the last one they saw.
    seq         integer primary key autoincrement,
    agent       integer not null,
    channel     blob not null,
    id          blob not null,
    topic       text,
    received_at integer not null,
    ttl         integer not null,
    -- The first moment at which it is worth nothing; follows from the two before.
    expires_at  integer not null,
    encoding    text,
    encryption  text,
    crypto_key  text,
    body        blob
) strict;
CREATE TABLE failing (
    subscription integer primary key references subscription (no),
    since        integer not null,
    exhausted    integer not null
) strict;
INSERT INTO failing VALUES(75,1700000000202,1);
CREATE TABLE recall (
    no           integer primary key,
    version      integer not null,
    subscription blob not null,
    delivery     blob not null,
    revival      integer not null,
    at           integer not null
) strict;
INSERT INTO recall VALUES(1,47,X'018bcfe568007000800000000000000b',X'018bcfe5680070008000000000000072',1,1700000000220);
INSERT INTO recall VALUES(2,48,X'018bcfe568007000800000000000000b',X'018bcfe5680070008000000000000073',1,1700000000221);
INSERT INTO recall VALUES(3,49,X'018bcfe568007000800000000000000b',X'018bcfe5680070008000000000000074',1,1700000000222);
INSERT INTO recall VALUES(4,50,X'018bcfe568007000800000000000000c',X'018bcfe568007000800000000000006d',1,1700000000223);
CREATE TABLE client (
    tenant        integer not null references tenant (no),
    name          text not null,
    sealed_secret blob,
    -- Null where the configuration says what the client may do.
    scopes        text,
    updated_at    integer not null,
    version       integer not null,
    -- One that is gone leaves its line without its contents, so that others learn of it.
    deleted       integer not null default 0,
    primary key (tenant, name)
) strict, without rowid;
INSERT INTO client VALUES(2,'gone',NULL,NULL,1700000000006,16,1);
INSERT INTO client VALUES(2,'open zaak é',X'007365616c6564ff',NULL,1700000000006,13,0);
INSERT INTO client VALUES(2,'other',NULL,'["a.b","c \"d\""]',1700000000006,14,0);
DELETE FROM sqlite_sequence;
CREATE INDEX subscription_unswept on subscription (no) where deleted_at is not null and swept = 0;
CREATE UNIQUE INDEX event_by_id on event (tenant, id);
CREATE INDEX idempotency_by_age on idempotency (accepted_at);
CREATE UNIQUE INDEX delivery_by_id on delivery (id, tenant, subscription);
CREATE INDEX delivery_due on delivery (subscription, due_at) where state < 2;
CREATE INDEX delivery_lane on delivery (subscription, lane) where holds_lane = 1;
CREATE INDEX delivery_dead on delivery (tenant) where state >= 10 and state < 20;
CREATE INDEX delivery_dead_by_id on delivery (tenant, id) where state >= 10 and state < 20;
CREATE UNIQUE INDEX certificate_caller on certificate (thumbprint)
    where kind = 'caller' and deleted = 0;
CREATE UNIQUE INDEX subscription_name on subscription (tenant, name)
    where name is not null and deleted_at is null;
CREATE INDEX push_agent_by_age on push_agent (seen_at);
CREATE INDEX push_message_by_agent on push_message (agent);
CREATE UNIQUE INDEX push_message_by_id on push_message (agent, id);
CREATE UNIQUE INDEX push_message_topic on push_message (agent, channel, topic)
    where topic is not null;
CREATE INDEX push_message_expiry on push_message (expires_at);
CREATE INDEX push_message_topics on push_message (agent) where topic is not null;
CREATE INDEX recall_by_version on recall (version);
CREATE INDEX recall_by_age on recall (at);
CREATE INDEX redrive_running on redrive (id) where state = 0;
CREATE INDEX redrive_ended on redrive (finished_at) where state <> 0;
CREATE INDEX redrive_by_tenant on redrive (tenant, id);
COMMIT;
