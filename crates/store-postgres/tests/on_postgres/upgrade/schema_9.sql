SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';

CREATE TABLE public.api_key (
    id uuid NOT NULL,
    tenant uuid,
    description text NOT NULL,
    scopes text NOT NULL,
    hash bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    version bigint NOT NULL,
    rate_limit integer
);
CREATE TABLE public.attempt (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
)
PARTITION BY RANGE (delivery);
CREATE TABLE public.attempt_d20261116 (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
);
CREATE TABLE public.attempt_d20261117 (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
);
CREATE TABLE public.attempt_d20261118 (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
);
CREATE TABLE public.attempt_d20261119 (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
);
CREATE TABLE public.attempt_rest (
    delivery uuid NOT NULL,
    started_at bigint NOT NULL,
    took bigint NOT NULL,
    number integer NOT NULL,
    status smallint,
    late boolean NOT NULL,
    failure text,
    detail text NOT NULL,
    response bytea NOT NULL
);
CREATE TABLE public.catalog (
    one boolean DEFAULT true NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT catalog_one_check CHECK (one)
);
CREATE TABLE public.certificate (
    tenant uuid NOT NULL,
    id uuid NOT NULL,
    kind text NOT NULL,
    description text NOT NULL,
    owner text NOT NULL,
    host text NOT NULL,
    scopes text NOT NULL,
    thumbprint bytea NOT NULL,
    subject text NOT NULL,
    pem text NOT NULL,
    sealed_key bytea,
    not_before bigint NOT NULL,
    not_after bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    revoked_at bigint,
    version bigint NOT NULL,
    removed boolean DEFAULT false NOT NULL
);
CREATE TABLE public.client (
    tenant uuid NOT NULL,
    name text NOT NULL,
    sealed_secret bytea,
    scopes text,
    updated_at bigint NOT NULL,
    version bigint NOT NULL,
    removed boolean DEFAULT false NOT NULL
);
CREATE TABLE public.delivery_done (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
)
PARTITION BY RANGE (id);
CREATE TABLE public.delivery_done_d20261116 (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.delivery_done_d20261117 (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.delivery_done_d20261118 (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.delivery_done_d20261119 (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.delivery_done_rest (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    state smallint NOT NULL,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.delivery_live (
    id uuid NOT NULL,
    event uuid NOT NULL,
    subscription uuid NOT NULL,
    tenant uuid NOT NULL,
    seq bigint NOT NULL,
    due_at bigint NOT NULL,
    budget_began bigint NOT NULL,
    created_at bigint NOT NULL,
    attempts integer NOT NULL,
    budget_base integer NOT NULL,
    shard smallint NOT NULL,
    state smallint NOT NULL,
    lane_slot smallint,
    lane text COLLATE pg_catalog."C",
    revival integer DEFAULT 0 NOT NULL,
    held_until bigint
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='0', vacuum_truncate=off);
CREATE SEQUENCE public.delivery_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.event (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
)
PARTITION BY RANGE (id);
ALTER TABLE ONLY public.event ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.event_d20261116 (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
);
ALTER TABLE ONLY public.event_d20261116 ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.event_d20261117 (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
);
ALTER TABLE ONLY public.event_d20261117 ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.event_d20261118 (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
);
ALTER TABLE ONLY public.event_d20261118 ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.event_d20261119 (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
);
ALTER TABLE ONLY public.event_d20261119 ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.event_rest (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    attributes text NOT NULL,
    key text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    accepted_at bigint NOT NULL,
    deliveries uuid[] NOT NULL
);
ALTER TABLE ONLY public.event_rest ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE public.failing (
    subscription uuid NOT NULL,
    shard smallint NOT NULL,
    since bigint NOT NULL,
    exhausted boolean NOT NULL
);
CREATE TABLE public.idempotency (
    tenant uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    event uuid NOT NULL,
    accepted_at bigint NOT NULL
);
CREATE TABLE public.key_use (
    key uuid NOT NULL,
    used_at bigint NOT NULL
);
CREATE TABLE public.lane_block (
    subscription uuid NOT NULL,
    lane text NOT NULL COLLATE pg_catalog."C",
    delivery uuid NOT NULL
);
CREATE TABLE public.migration (
    version integer NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE public.node (
    id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    catalog bigint NOT NULL
);
CREATE TABLE public.profile (
    tenant uuid NOT NULL,
    name text NOT NULL,
    base text NOT NULL,
    policy text NOT NULL,
    updated_at bigint NOT NULL,
    version bigint NOT NULL,
    removed boolean DEFAULT false NOT NULL
);
CREATE TABLE public.push_agent (
    id uuid NOT NULL,
    node text,
    connected_at bigint NOT NULL,
    created_at bigint NOT NULL,
    seen_at bigint NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE public.push_channel (
    agent uuid NOT NULL,
    id uuid NOT NULL,
    key_hash bytea,
    created_at bigint NOT NULL
);
CREATE TABLE public.push_message (
    agent uuid NOT NULL,
    seq bigint NOT NULL,
    channel uuid NOT NULL,
    id uuid NOT NULL,
    topic text COLLATE pg_catalog."C",
    received_at bigint NOT NULL,
    ttl bigint NOT NULL,
    expires_at bigint NOT NULL,
    encoding text,
    encryption text,
    crypto_key text,
    body bytea
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_insert_scale_factor='0.2');
ALTER TABLE ONLY public.push_message ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE SEQUENCE public.push_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.recall (
    no bigint NOT NULL,
    version bigint NOT NULL,
    subscription uuid NOT NULL,
    delivery uuid NOT NULL,
    revival integer NOT NULL,
    at bigint NOT NULL
);
ALTER TABLE public.recall ALTER COLUMN no ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.recall_no_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.redrive (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    filter text NOT NULL,
    per_second integer NOT NULL,
    state smallint NOT NULL,
    total bigint NOT NULL,
    moved bigint NOT NULL,
    created_at bigint NOT NULL,
    finished_at bigint,
    cursor uuid
);
CREATE TABLE public.shard_lease (
    shard smallint NOT NULL,
    node uuid,
    epoch bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.subscription (
    id uuid NOT NULL,
    tenant uuid NOT NULL,
    description text NOT NULL,
    destination text NOT NULL,
    filter text NOT NULL,
    profile text NOT NULL,
    overrides text NOT NULL,
    secrets text NOT NULL,
    status text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    version bigint NOT NULL,
    deleted_at bigint,
    labels text DEFAULT '{}'::text NOT NULL,
    name text,
    stops text DEFAULT '[]'::text NOT NULL
);
CREATE TABLE public.subscription_gone (
    id uuid NOT NULL,
    shard smallint NOT NULL,
    deleted_at bigint NOT NULL
);
CREATE TABLE public.tenant (
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE public.topic (
    tenant uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    description text NOT NULL,
    attributes text NOT NULL,
    created_at bigint NOT NULL,
    version bigint NOT NULL,
    removed boolean DEFAULT false NOT NULL,
    labels text DEFAULT '{}'::text NOT NULL
);
ALTER TABLE ONLY public.attempt ATTACH PARTITION public.attempt_d20261116 FOR VALUES FROM ('01a1e1a7-4c00-0000-0000-000000000000') TO ('01a1e6cd-a800-0000-0000-000000000000');
ALTER TABLE ONLY public.attempt ATTACH PARTITION public.attempt_d20261117 FOR VALUES FROM ('01a1e6cd-a800-0000-0000-000000000000') TO ('01a1ebf4-0400-0000-0000-000000000000');
ALTER TABLE ONLY public.attempt ATTACH PARTITION public.attempt_d20261118 FOR VALUES FROM ('01a1ebf4-0400-0000-0000-000000000000') TO ('01a1f11a-6000-0000-0000-000000000000');
ALTER TABLE ONLY public.attempt ATTACH PARTITION public.attempt_d20261119 FOR VALUES FROM ('01a1f11a-6000-0000-0000-000000000000') TO ('01a1f640-bc00-0000-0000-000000000000');
ALTER TABLE ONLY public.attempt ATTACH PARTITION public.attempt_rest DEFAULT;
ALTER TABLE ONLY public.delivery_done ATTACH PARTITION public.delivery_done_d20261116 FOR VALUES FROM ('01a1e1a7-4c00-0000-0000-000000000000') TO ('01a1e6cd-a800-0000-0000-000000000000');
ALTER TABLE ONLY public.delivery_done ATTACH PARTITION public.delivery_done_d20261117 FOR VALUES FROM ('01a1e6cd-a800-0000-0000-000000000000') TO ('01a1ebf4-0400-0000-0000-000000000000');
ALTER TABLE ONLY public.delivery_done ATTACH PARTITION public.delivery_done_d20261118 FOR VALUES FROM ('01a1ebf4-0400-0000-0000-000000000000') TO ('01a1f11a-6000-0000-0000-000000000000');
ALTER TABLE ONLY public.delivery_done ATTACH PARTITION public.delivery_done_d20261119 FOR VALUES FROM ('01a1f11a-6000-0000-0000-000000000000') TO ('01a1f640-bc00-0000-0000-000000000000');
ALTER TABLE ONLY public.delivery_done ATTACH PARTITION public.delivery_done_rest DEFAULT;
ALTER TABLE ONLY public.event ATTACH PARTITION public.event_d20261116 FOR VALUES FROM ('01a1e1a7-4c00-0000-0000-000000000000') TO ('01a1e6cd-a800-0000-0000-000000000000');
ALTER TABLE ONLY public.event ATTACH PARTITION public.event_d20261117 FOR VALUES FROM ('01a1e6cd-a800-0000-0000-000000000000') TO ('01a1ebf4-0400-0000-0000-000000000000');
ALTER TABLE ONLY public.event ATTACH PARTITION public.event_d20261118 FOR VALUES FROM ('01a1ebf4-0400-0000-0000-000000000000') TO ('01a1f11a-6000-0000-0000-000000000000');
ALTER TABLE ONLY public.event ATTACH PARTITION public.event_d20261119 FOR VALUES FROM ('01a1f11a-6000-0000-0000-000000000000') TO ('01a1f640-bc00-0000-0000-000000000000');
ALTER TABLE ONLY public.event ATTACH PARTITION public.event_rest DEFAULT;
INSERT INTO public.api_key VALUES ('018bcfe5-6800-7000-8000-000000000001', NULL, 'key 1', '["operator"]', '\xa5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba', 1700000000000, NULL, NULL, 17, NULL);
INSERT INTO public.api_key VALUES ('018bcfe5-6800-7000-8000-000000000002', NULL, 'key 2', '["operator"]', '\xa5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba', 1700000000000, 1700000000002, NULL, 18, 250);
INSERT INTO public.api_key VALUES ('018bcfe5-6800-7000-8000-000000000003', '018bcfe5-6800-7000-8000-000000000001', 'key 3', '["publish","subscriptions"]', '\xa5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba', 1700000000000, 1700001000000, NULL, 19, 250);
INSERT INTO public.api_key VALUES ('018bcfe5-6800-7000-8000-000000000004', '018bcfe5-6800-7000-8000-000000000001', 'key 4', '["publish","read"]', '\xa5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba', 1700000000000, NULL, 1700000000060, 21, 250);
INSERT INTO public.api_key VALUES ('018bcfe5-6800-7000-8000-000000000005', '018bcfe5-6800-7000-8000-000000000002', 'key 5', '[]', '\xa5a4a7a6a1a0a3a2adacafaea9a8abaab5b4b7b6b1b0b3b2bdbcbfbeb9b8bbba', 1700000000000, 1700001000000, NULL, 22, 250);
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000065', 1700000000001, 12, 1, 204, false, NULL, 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000066', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000066', 1700000000002, 12, 2, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000067', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-00000000006a', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-00000000006c', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000077', 1700000000001, 12, 1, 204, false, NULL, 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000079', 1700000000001, 12, 1, 204, false, NULL, 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000070', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000071', 1700000000001, 12, 1, NULL, false, 'response_timeout', 'told é', '\x00616e73776572');
INSERT INTO public.attempt_rest VALUES ('018bcfe5-6800-7000-8000-000000000067', 1700000000002, 12, 2, 200, false, NULL, '', '\x');
INSERT INTO public.catalog VALUES (true, 52);
INSERT INTO public.certificate VALUES ('018bcfe5-6800-7000-8000-000000000001', '018bcfe5-6800-7000-8000-000000000001', 'client', 'a certificate', 'DE', 'receiver.example', '["read"]', '\x0101010101010101010101010101010101010101010101010101010101010101', 'CN=receiver, C=DE', '-----BEGIN CERTIFICATE-----
1
', '\x00ff01', 1699999999995, 1700000005000, 1700000000000, 1700000000000, NULL, 24, false);
INSERT INTO public.certificate VALUES ('018bcfe5-6800-7000-8000-000000000002', '018bcfe5-6800-7000-8000-000000000002', 'caller', 'a certificate', 'DE', 'receiver.example', '["read"]', '\x0202020202020202020202020202020202020202020202020202020202020202', 'CN=receiver, C=DE', '-----BEGIN CERTIFICATE-----
2
', NULL, 1699999999995, 1700000005000, 1700000000000, 1700000000000, NULL, 26, false);
INSERT INTO public.certificate VALUES ('018bcfe5-6800-7000-8000-000000000001', '018bcfe5-6800-7000-8000-000000000003', 'authority', 'a certificate', '', 'receiver.example', '[]', '\x0303030303030303030303030303030303030303030303030303030303030303', 'CN=receiver, C=DE', 'first', '\x00ff01', 1699999999995, 1700000005000, 1700000000000, 1700000000000, 1700000000070, 28, false);
INSERT INTO public.certificate VALUES ('018bcfe5-6800-7000-8000-000000000001', '018bcfe5-6800-7000-8000-000000000004', 'caller', '', 'DE', 'receiver.example', '["read"]', '\x0404040404040404040404040404040404040404040404040404040404040404', '', '', NULL, 1699999999995, 1700000005000, 1700000000000, 1700000000000, NULL, 30, true);
INSERT INTO public.client VALUES ('018bcfe5-6800-7000-8000-000000000001', 'open zaak é', '\x007365616c6564ff', NULL, 1700000000006, 13, false);
INSERT INTO public.client VALUES ('018bcfe5-6800-7000-8000-000000000001', 'other', NULL, '["a.b","c \"d\""]', 1700000000006, 14, false);
INSERT INTO public.client VALUES ('018bcfe5-6800-7000-8000-000000000001', 'gone', NULL, NULL, 1700000000006, 16, true);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000065', '018bcfe5-6800-7000-8000-000000000065', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 1, 1700000000100, 1700000000100, 1700000000200, 1, 0, 2, NULL, 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-00000000006a', '018bcfe5-6800-7000-8000-00000000006a', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 6, 1700000000100, 1700000000100, 1700000000203, 1, 0, 10, 'blocked', 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000077', '018bcfe5-6800-7000-8000-000000000077', '018bcfe5-6800-7000-8000-00000000000e', '018bcfe5-6800-7000-8000-000000000001', 19, 1700000000100, 1700000000100, 1700000000205, 1, 0, 2, NULL, 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000079', '018bcfe5-6800-7000-8000-000000000079', '018bcfe5-6800-7000-8000-000000000011', '018bcfe5-6800-7000-8000-000000000002', 20, 1700000000100, 1700000000100, 1700000000206, 1, 0, 2, NULL, 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000070', '018bcfe5-6800-7000-8000-000000000070', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 12, 1700000000100, 1700000000100, 1700000000210, 1, 0, 10, NULL, 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000071', '018bcfe5-6800-7000-8000-000000000071', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 13, 1700000000100, 1700000000100, 1700000000211, 1, 0, 10, NULL, 0);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-000000000072', '018bcfe5-6800-7000-8000-000000000072', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 14, 1700000000100, 1700000000100, 1700000000220, 0, 0, 21, NULL, 1);
INSERT INTO public.delivery_done_rest VALUES ('018bcfe5-6800-7000-8000-00000000006f', '018bcfe5-6800-7000-8000-00000000006f', '018bcfe5-6800-7000-8000-00000000000f', '018bcfe5-6800-7000-8000-000000000001', 11, 1700000000100, 1700000000100, 1700000000241, 0, 0, 20, NULL, 0);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000068', '018bcfe5-6800-7000-8000-000000000068', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 4, 1700000000100, 1700000000100, 1700000000100, 0, 0, 12, 0, 1359, 'waits', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000069', '018bcfe5-6800-7000-8000-000000000069', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 5, 9223372036854775807, 1700000000100, 1700000000100, 0, 0, 12, 0, 1359, 'waits', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-00000000006b', '018bcfe5-6800-7000-8000-00000000006b', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 7, 9223372036854775807, 1700000000100, 1700000000100, 0, 0, 12, 0, 2817, 'blocked', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000075', '018bcfe5-6800-7000-8000-000000000075', '018bcfe5-6800-7000-8000-000000000010', '018bcfe5-6800-7000-8000-000000000001', 17, 1700000000100, 1700000000100, 1700000000100, 0, 0, 16, 0, 1502, 'left', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000076', '018bcfe5-6800-7000-8000-000000000076', '018bcfe5-6800-7000-8000-000000000010', '018bcfe5-6800-7000-8000-000000000001', 18, 9223372036854775807, 1700000000100, 1700000000100, 0, 0, 16, 0, 1502, 'left', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-00000000007a', '018bcfe5-6800-7000-8000-00000000007a', '018bcfe5-6800-7000-8000-000000000011', '018bcfe5-6800-7000-8000-000000000002', 21, 1700000000100, 1700000000100, 1700000000100, 0, 0, 17, 0, NULL, NULL, 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-00000000006e', '018bcfe5-6800-7000-8000-00000000006e', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 10, 1700000999000, 1700000000100, 1700000000100, 0, 0, 12, 1, 3737, '', 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000073', '018bcfe5-6800-7000-8000-000000000073', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 15, 1700000000221, 1700000000221, 1700000000100, 0, 0, 11, 0, NULL, NULL, 1, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-00000000006d', '018bcfe5-6800-7000-8000-00000000006d', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 9, 9223372036854775807, 1700000000100, 1700000000100, 0, 0, 12, 0, 1863, 'displaced', 1, 1700000000204);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-00000000006c', '018bcfe5-6800-7000-8000-00000000006c', '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', 8, 1700000000223, 1700000000223, 1700000000100, 1, 1, 12, 0, 1863, 'displaced', 1, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000067', '018bcfe5-6800-7000-8000-000000000067', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 3, 1700000900001, 1700000000100, 1700000000100, 2, 0, 11, 0, NULL, NULL, 0, NULL);
INSERT INTO public.delivery_live VALUES ('018bcfe5-6800-7000-8000-000000000066', '018bcfe5-6800-7000-8000-000000000066', '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 2, 1700000000250, 1700000000250, 1700000000100, 2, 2, 11, 0, NULL, NULL, 1, NULL);
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000065', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130317d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000065}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000066', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130327d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000066}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000067', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130337d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000067}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000068', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130347d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000068}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000069', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130357d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000069}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006a', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130367d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006a}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006b', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130377d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006b}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006c', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130387d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006c}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006d', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3130397d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006d}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006e', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131307d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006e}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000006f', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131317d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000006f}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000070', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131327d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000070}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000071', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131337d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000071}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000072', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131347d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000072}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000073', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131357d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000073}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000075', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131377d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000075}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000076', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131387d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000076}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000077', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131397d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000077}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000078', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3132307d', 1700000000100, '{}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000079', '018bcfe5-6800-7000-8000-000000000002', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3132317d', 1700000000100, '{018bcfe5-6800-7000-8000-000000000079}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-00000000007a', '018bcfe5-6800-7000-8000-000000000002', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3132327d', 1700000000100, '{018bcfe5-6800-7000-8000-00000000007a}');
INSERT INTO public.event_rest VALUES ('018bcfe5-6800-7000-8000-000000000074', '018bcfe5-6800-7000-8000-000000000001', 'orders', 'order.created', '{"colour":"red é"}', NULL, 'application/json', '\x7b226e756d626572223a3131367d', 1700000000100, '{}');
INSERT INTO public.failing VALUES ('018bcfe5-6800-7000-8000-00000000000b', 11, 1700000000202, true);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 101', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000065', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 102', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000066', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 103', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000067', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 104', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000068', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 105', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000069', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 106', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006a', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 107', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006b', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 108', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006c', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 109', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006d', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 110', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006e', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 111', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000006f', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 112', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000070', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 113', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000071', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 114', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000072', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 115', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000073', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 116', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000074', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 117', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000075', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 118', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000076', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 119', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000077', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000001', 'key 120', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000078', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000002', 'key 121', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-000000000079', 1700000000100);
INSERT INTO public.idempotency VALUES ('018bcfe5-6800-7000-8000-000000000002', 'key 122', '\x0101010101010101010101010101010101010101010101010101010101010101', '018bcfe5-6800-7000-8000-00000000007a', 1700000000100);
INSERT INTO public.key_use VALUES ('018bcfe5-6800-7000-8000-000000000001', 1700000000000);
INSERT INTO public.key_use VALUES ('018bcfe5-6800-7000-8000-000000000002', 1700000000000);
INSERT INTO public.key_use VALUES ('018bcfe5-6800-7000-8000-000000000003', 1700000000000);
INSERT INTO public.lane_block VALUES ('018bcfe5-6800-7000-8000-00000000000c', 'blocked', '018bcfe5-6800-7000-8000-00000000006a');
INSERT INTO public.migration VALUES (1, '843f65ee84658e84', '2026-11-16 06:58:49.832652+00');
INSERT INTO public.migration VALUES (2, '16e2224b14d7dd69', '2026-11-16 06:58:49.848461+00');
INSERT INTO public.migration VALUES (3, '0b8b0e23c4ad6fed', '2026-11-16 06:58:49.868692+00');
INSERT INTO public.migration VALUES (4, '3976fa958fa01fad', '2026-11-16 06:58:49.90063+00');
INSERT INTO public.migration VALUES (5, '0f5780b4e172868d', '2026-11-16 06:58:49.932625+00');
INSERT INTO public.migration VALUES (6, 'ec51583eb84a1e06', '2026-11-16 06:58:49.94844+00');
INSERT INTO public.migration VALUES (7, 'fbe8c754e67ddbce', '2026-11-16 06:58:49.96416+00');
INSERT INTO public.migration VALUES (8, '31c4cee0c141436f', '2026-11-16 06:58:49.988413+00');
INSERT INTO public.migration VALUES (9, '02ebe3e69503be79', '2026-11-16 06:58:50.012445+00');
INSERT INTO public.profile VALUES ('018bcfe5-6800-7000-8000-000000000001', 'patient', 'default', '{"schedule":{"max_attempts":3},"spacing":null}', 1700000000004, 10, false);
INSERT INTO public.profile VALUES ('018bcfe5-6800-7000-8000-000000000001', 'gone', 'default', '{"schedule":{"max_attempts":3},"spacing":null}', 1700000000004, 12, true);
INSERT INTO public.recall OVERRIDING SYSTEM VALUE VALUES (1, 47, '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000072', 1, 1700000000220);
INSERT INTO public.recall OVERRIDING SYSTEM VALUE VALUES (2, 48, '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000073', 1, 1700000000221);
INSERT INTO public.recall OVERRIDING SYSTEM VALUE VALUES (3, 49, '018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000074', 1, 1700000000222);
INSERT INTO public.recall OVERRIDING SYSTEM VALUE VALUES (4, 50, '018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-00000000006d', 1, 1700000000223);
INSERT INTO public.redrive VALUES ('018bcfe5-6800-7000-8000-000000000001', '018bcfe5-6800-7000-8000-000000000001', '{"subscription":"sub_01hf7yat00e00800000000000b","until":"2023-11-14T22:13:25.000Z"}', 100, 0, 3, 1, 1700000000000, NULL, '018bcfe5-6800-7000-8000-000000000066');
INSERT INTO public.redrive VALUES ('018bcfe5-6800-7000-8000-000000000002', '018bcfe5-6800-7000-8000-000000000001', '{"until":"2023-11-14T22:13:25.000Z"}', 100, 2, 3, 0, 1700000000000, 1700000000251, NULL);
INSERT INTO public.redrive VALUES ('018bcfe5-6800-7000-8000-000000000003', '018bcfe5-6800-7000-8000-000000000001', '{"subscription":"sub_01hf7yat00e00800000000000e","until":"2023-11-14T22:13:25.000Z"}', 100, 1, 0, 0, 1700000000000, 1700000000252, NULL);
INSERT INTO public.shard_lease VALUES (0, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132415+00');
INSERT INTO public.shard_lease VALUES (1, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132439+00');
INSERT INTO public.shard_lease VALUES (2, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132442+00');
INSERT INTO public.shard_lease VALUES (3, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132444+00');
INSERT INTO public.shard_lease VALUES (4, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132445+00');
INSERT INTO public.shard_lease VALUES (5, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132447+00');
INSERT INTO public.shard_lease VALUES (6, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132448+00');
INSERT INTO public.shard_lease VALUES (7, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.13245+00');
INSERT INTO public.shard_lease VALUES (8, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132451+00');
INSERT INTO public.shard_lease VALUES (9, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132452+00');
INSERT INTO public.shard_lease VALUES (10, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132454+00');
INSERT INTO public.shard_lease VALUES (11, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132455+00');
INSERT INTO public.shard_lease VALUES (12, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132456+00');
INSERT INTO public.shard_lease VALUES (13, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132457+00');
INSERT INTO public.shard_lease VALUES (14, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132467+00');
INSERT INTO public.shard_lease VALUES (15, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132468+00');
INSERT INTO public.shard_lease VALUES (16, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.13247+00');
INSERT INTO public.shard_lease VALUES (17, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132471+00');
INSERT INTO public.shard_lease VALUES (18, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132473+00');
INSERT INTO public.shard_lease VALUES (19, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132474+00');
INSERT INTO public.shard_lease VALUES (20, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132475+00');
INSERT INTO public.shard_lease VALUES (21, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132477+00');
INSERT INTO public.shard_lease VALUES (22, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132478+00');
INSERT INTO public.shard_lease VALUES (23, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132479+00');
INSERT INTO public.shard_lease VALUES (24, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132481+00');
INSERT INTO public.shard_lease VALUES (25, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132482+00');
INSERT INTO public.shard_lease VALUES (26, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132484+00');
INSERT INTO public.shard_lease VALUES (27, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132485+00');
INSERT INTO public.shard_lease VALUES (28, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132486+00');
INSERT INTO public.shard_lease VALUES (29, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132488+00');
INSERT INTO public.shard_lease VALUES (30, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132489+00');
INSERT INTO public.shard_lease VALUES (31, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.13249+00');
INSERT INTO public.shard_lease VALUES (32, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132491+00');
INSERT INTO public.shard_lease VALUES (33, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132493+00');
INSERT INTO public.shard_lease VALUES (34, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132494+00');
INSERT INTO public.shard_lease VALUES (35, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132495+00');
INSERT INTO public.shard_lease VALUES (36, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132496+00');
INSERT INTO public.shard_lease VALUES (37, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132498+00');
INSERT INTO public.shard_lease VALUES (38, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132499+00');
INSERT INTO public.shard_lease VALUES (39, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.1325+00');
INSERT INTO public.shard_lease VALUES (40, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132501+00');
INSERT INTO public.shard_lease VALUES (41, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132502+00');
INSERT INTO public.shard_lease VALUES (42, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132504+00');
INSERT INTO public.shard_lease VALUES (43, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132505+00');
INSERT INTO public.shard_lease VALUES (44, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132506+00');
INSERT INTO public.shard_lease VALUES (45, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132508+00');
INSERT INTO public.shard_lease VALUES (46, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132509+00');
INSERT INTO public.shard_lease VALUES (47, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.13251+00');
INSERT INTO public.shard_lease VALUES (48, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132511+00');
INSERT INTO public.shard_lease VALUES (49, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132513+00');
INSERT INTO public.shard_lease VALUES (50, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132514+00');
INSERT INTO public.shard_lease VALUES (51, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132515+00');
INSERT INTO public.shard_lease VALUES (52, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132516+00');
INSERT INTO public.shard_lease VALUES (53, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132658+00');
INSERT INTO public.shard_lease VALUES (54, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132663+00');
INSERT INTO public.shard_lease VALUES (55, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132667+00');
INSERT INTO public.shard_lease VALUES (56, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132671+00');
INSERT INTO public.shard_lease VALUES (57, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132683+00');
INSERT INTO public.shard_lease VALUES (58, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132686+00');
INSERT INTO public.shard_lease VALUES (59, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132689+00');
INSERT INTO public.shard_lease VALUES (60, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132691+00');
INSERT INTO public.shard_lease VALUES (61, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132693+00');
INSERT INTO public.shard_lease VALUES (62, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132695+00');
INSERT INTO public.shard_lease VALUES (63, '018bcfe5-6800-7000-8000-000000000001', 1, '2026-11-16 07:08:52.132697+00');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-00000000000b', '018bcfe5-6800-7000-8000-000000000001', 'number 11, with a "quote" and a \ and
a line', '{"kind":"webhook","url":"https://example.test/11?a=b"}', '{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'patient', '{"schedule":{"max_attempts":3},"spacing":null}', '[{"name":"signing","sealed":[0,255,1,128],"created_at":1700000000001,"expires_at":1700000090000},{"name":"signing","sealed":[0,110,101,119,101,114],"created_at":1700000000002,"expires_at":null},{"name":"token","sealed":[],"created_at":1700000000003,"expires_at":null}]', '{"status":"active"}', 1700000000000, 1700000000005, 32, NULL, '{"country":"DE","note":"📯"}', 'name é 11', '[]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-00000000000c', '018bcfe5-6800-7000-8000-000000000001', '', '{"kind":"webhook","url":"https://plain.test/12"}', '{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'default', 'null', '[]', '{"status":"active"}', 1700000000000, 1700000000000, 34, NULL, '{}', NULL, '[]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-00000000000d', '018bcfe5-6800-7000-8000-000000000001', 'number 13, with a "quote" and a \ and
a line', '{"kind":"webhook","url":"https://example.test/13?a=b"}', '{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'patient', '{"schedule":{"max_attempts":3},"spacing":null}', '[]', '{"status":"disabled","reason":"it answered 410 – \"gone\""}', 1700000000000, 1700000000005, 36, NULL, '{"country":"DE","note":"📯"}', 'name é 13', '[[1700000000010,1700000000020],[1700000000030,null]]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-00000000000e', '018bcfe5-6800-7000-8000-000000000001', '', '{"kind":"push","agent":"00000000000040008000000000000001","channel":"00000000-0000-4000-8000-000000000002","p256dh":"BPublic","ttl":60}', '{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'default', 'null', '[]', '{"status":"active"}', 1700000000000, 1700000000000, 38, NULL, '{}', NULL, '[]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-000000000011', '018bcfe5-6800-7000-8000-000000000002', '', '{"kind":"webhook","url":"https://plain.test/17"}', '{"any_of":[{}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'default', 'null', '[]', '{"status":"active"}', 1700000000000, 1700000000000, 40, NULL, '{}', 'name é 11', '[]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-000000000012', '018bcfe5-6800-7000-8000-000000000001', 'number 18, with a "quote" and a \ and
a line', '{"kind":"webhook","url":"https://example.test/18?a=b"}', '{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'patient', '{"schedule":{"max_attempts":3},"spacing":null}', '[]', '{"status":"paused"}', 1700000000000, 1700000000005, 42, NULL, '{"country":"DE","note":"📯"}', 'name é 18', '[[1700000000010,1700000000020],[1700000000030,null]]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-00000000000f', '018bcfe5-6800-7000-8000-000000000001', 'number 15, with a "quote" and a \ and
a line', '{"kind":"webhook","url":"https://example.test/15?a=b"}', '{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'patient', '{"schedule":{"max_attempts":3},"spacing":null}', '[]', '{"status":"active"}', 1700000000000, 1700000000005, 51, 1700000000240, '{"country":"DE","note":"📯"}', 'name é 15', '[]');
INSERT INTO public.subscription VALUES ('018bcfe5-6800-7000-8000-000000000010', '018bcfe5-6800-7000-8000-000000000001', 'number 16, with a "quote" and a \ and
a line', '{"kind":"webhook","url":"https://example.test/16?a=b"}', '{"any_of":[{"attributes":{"colour":"red"}}],"missing_attribute":"mismatch","attribute_names":"exact"}', 'patient', '{"schedule":{"max_attempts":3},"spacing":null}', '[]', '{"status":"active"}', 1700000000000, 1700000000005, 52, 1700000000242, '{"country":"DE","note":"📯"}', NULL, '[]');
INSERT INTO public.subscription_gone VALUES ('018bcfe5-6800-7000-8000-000000000010', 16, 1700000000242);
INSERT INTO public.tenant VALUES ('00000000-0000-0000-0000-000000000000', 'default', 0, 1);
INSERT INTO public.tenant VALUES ('018bcfe5-6800-7000-8000-000000000002', 'other é', 1700000000001, 40);
INSERT INTO public.tenant VALUES ('018bcfe5-6800-7000-8000-000000000001', 'acme', 1700000000001, 52);
INSERT INTO public.topic VALUES ('018bcfe5-6800-7000-8000-000000000001', 'orders', 'about orders', '["colour","size"]', 1700000000000, 5, false, '{"link":"https://example.test/"}');
INSERT INTO public.topic VALUES ('018bcfe5-6800-7000-8000-000000000002', 'orders/eu:1.x', 'about orders/eu:1.x', '["colour"]', 1700000000000, 7, false, '{}');
INSERT INTO public.topic VALUES ('018bcfe5-6800-7000-8000-000000000001', 'gone', 'about gone', '["colour"]', 1700000000000, 9, true, '{"link":"https://example.test/"}');
SELECT pg_catalog.setval('public.delivery_seq', 21, true);
SELECT pg_catalog.setval('public.push_seq', 1, false);
SELECT pg_catalog.setval('public.recall_no_seq', 4, true);
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.catalog
    ADD CONSTRAINT catalog_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.certificate
    ADD CONSTRAINT certificate_id_key UNIQUE (id);
ALTER TABLE ONLY public.certificate
    ADD CONSTRAINT certificate_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.client
    ADD CONSTRAINT client_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY public.delivery_done
    ADD CONSTRAINT delivery_done_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_done_d20261116
    ADD CONSTRAINT delivery_done_d20261116_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_done_d20261117
    ADD CONSTRAINT delivery_done_d20261117_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_done_d20261118
    ADD CONSTRAINT delivery_done_d20261118_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_done_d20261119
    ADD CONSTRAINT delivery_done_d20261119_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_done_rest
    ADD CONSTRAINT delivery_done_rest_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.delivery_live
    ADD CONSTRAINT delivery_live_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.event_d20261116
    ADD CONSTRAINT event_d20261116_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.event_d20261117
    ADD CONSTRAINT event_d20261117_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.event_d20261118
    ADD CONSTRAINT event_d20261118_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.event_d20261119
    ADD CONSTRAINT event_d20261119_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.event_rest
    ADD CONSTRAINT event_rest_pkey PRIMARY KEY (tenant, id);
ALTER TABLE ONLY public.failing
    ADD CONSTRAINT failing_pkey PRIMARY KEY (subscription);
ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY public.key_use
    ADD CONSTRAINT key_use_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.lane_block
    ADD CONSTRAINT lane_block_delivery_key UNIQUE (delivery);
ALTER TABLE ONLY public.lane_block
    ADD CONSTRAINT lane_block_pkey PRIMARY KEY (subscription, lane);
ALTER TABLE ONLY public.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.profile
    ADD CONSTRAINT profile_pkey PRIMARY KEY (tenant, name);
ALTER TABLE ONLY public.push_agent
    ADD CONSTRAINT push_agent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.push_channel
    ADD CONSTRAINT push_channel_pkey PRIMARY KEY (agent, id);
ALTER TABLE ONLY public.push_message
    ADD CONSTRAINT push_message_pkey PRIMARY KEY (agent, seq);
ALTER TABLE ONLY public.recall
    ADD CONSTRAINT recall_pkey PRIMARY KEY (no);
ALTER TABLE ONLY public.redrive
    ADD CONSTRAINT redrive_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.shard_lease
    ADD CONSTRAINT shard_lease_pkey PRIMARY KEY (shard);
ALTER TABLE ONLY public.subscription_gone
    ADD CONSTRAINT subscription_gone_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.subscription
    ADD CONSTRAINT subscription_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_name_key UNIQUE (name);
ALTER TABLE ONLY public.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.topic
    ADD CONSTRAINT topic_pkey PRIMARY KEY (tenant, name);
CREATE INDEX api_key_version ON public.api_key USING btree (version);
CREATE INDEX attempt_delivery ON ONLY public.attempt USING btree (delivery, number);
CREATE INDEX attempt_d20261116_delivery_number_idx ON public.attempt_d20261116 USING btree (delivery, number);
CREATE INDEX attempt_d20261117_delivery_number_idx ON public.attempt_d20261117 USING btree (delivery, number);
CREATE INDEX attempt_d20261118_delivery_number_idx ON public.attempt_d20261118 USING btree (delivery, number);
CREATE INDEX attempt_d20261119_delivery_number_idx ON public.attempt_d20261119 USING btree (delivery, number);
CREATE INDEX attempt_rest_delivery_number_idx ON public.attempt_rest USING btree (delivery, number);
CREATE UNIQUE INDEX certificate_caller ON public.certificate USING btree (thumbprint) WHERE ((kind = 'caller'::text) AND (NOT removed));
CREATE INDEX certificate_version ON public.certificate USING btree (version);
CREATE INDEX client_version ON public.client USING btree (version);
CREATE INDEX delivery_done_subscription ON ONLY public.delivery_done USING btree (subscription, id);
CREATE INDEX delivery_done_d20261116_subscription_id_idx ON public.delivery_done_d20261116 USING btree (subscription, id);
CREATE INDEX delivery_done_dead ON ONLY public.delivery_done USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_done_d20261116_tenant_id_idx ON public.delivery_done_d20261116 USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_done_d20261117_subscription_id_idx ON public.delivery_done_d20261117 USING btree (subscription, id);
CREATE INDEX delivery_done_d20261117_tenant_id_idx ON public.delivery_done_d20261117 USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_done_d20261118_subscription_id_idx ON public.delivery_done_d20261118 USING btree (subscription, id);
CREATE INDEX delivery_done_d20261118_tenant_id_idx ON public.delivery_done_d20261118 USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_done_d20261119_subscription_id_idx ON public.delivery_done_d20261119 USING btree (subscription, id);
CREATE INDEX delivery_done_d20261119_tenant_id_idx ON public.delivery_done_d20261119 USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_done_rest_subscription_id_idx ON public.delivery_done_rest USING btree (subscription, id);
CREATE INDEX delivery_done_rest_tenant_id_idx ON public.delivery_done_rest USING btree (tenant, id) WHERE ((state >= 10) AND (state <= 19));
CREATE INDEX delivery_live_due ON public.delivery_live USING btree (shard, subscription, due_at, seq) WHERE (due_at < '9223372036854775807'::bigint);
CREATE UNIQUE INDEX delivery_live_head ON public.delivery_live USING btree (subscription, lane) WHERE ((lane IS NOT NULL) AND (due_at < '9223372036854775807'::bigint));
CREATE INDEX delivery_live_parked ON public.delivery_live USING btree (subscription, lane, seq) WHERE (due_at = '9223372036854775807'::bigint);
CREATE INDEX idempotency_accepted ON public.idempotency USING btree (accepted_at);
CREATE INDEX profile_version ON public.profile USING btree (version);
CREATE INDEX push_agent_seen ON public.push_agent USING btree (seen_at);
CREATE INDEX push_message_expiry ON public.push_message USING btree (expires_at);
CREATE UNIQUE INDEX push_message_id ON public.push_message USING btree (agent, id);
CREATE UNIQUE INDEX push_message_topic ON public.push_message USING btree (agent, channel, topic) WHERE (topic IS NOT NULL);
CREATE INDEX push_message_topics ON public.push_message USING btree (agent, seq) WHERE (topic IS NOT NULL);
CREATE INDEX recall_at ON public.recall USING btree (at);
CREATE INDEX recall_version ON public.recall USING btree (version);
CREATE INDEX redrive_ended ON public.redrive USING btree (finished_at) WHERE (state <> 0);
CREATE INDEX redrive_running ON public.redrive USING btree (id) WHERE (state = 0);
CREATE INDEX redrive_tenant ON public.redrive USING btree (tenant, id);
CREATE UNIQUE INDEX subscription_name ON public.subscription USING btree (tenant, name) WHERE ((name IS NOT NULL) AND (deleted_at IS NULL));
CREATE INDEX subscription_version ON public.subscription USING btree (version);
CREATE INDEX tenant_version ON public.tenant USING btree (version);
CREATE INDEX topic_version ON public.topic USING btree (version);
ALTER INDEX public.attempt_delivery ATTACH PARTITION public.attempt_d20261116_delivery_number_idx;
ALTER INDEX public.attempt_delivery ATTACH PARTITION public.attempt_d20261117_delivery_number_idx;
ALTER INDEX public.attempt_delivery ATTACH PARTITION public.attempt_d20261118_delivery_number_idx;
ALTER INDEX public.attempt_delivery ATTACH PARTITION public.attempt_d20261119_delivery_number_idx;
ALTER INDEX public.attempt_delivery ATTACH PARTITION public.attempt_rest_delivery_number_idx;
ALTER INDEX public.delivery_done_pkey ATTACH PARTITION public.delivery_done_d20261116_pkey;
ALTER INDEX public.delivery_done_subscription ATTACH PARTITION public.delivery_done_d20261116_subscription_id_idx;
ALTER INDEX public.delivery_done_dead ATTACH PARTITION public.delivery_done_d20261116_tenant_id_idx;
ALTER INDEX public.delivery_done_pkey ATTACH PARTITION public.delivery_done_d20261117_pkey;
ALTER INDEX public.delivery_done_subscription ATTACH PARTITION public.delivery_done_d20261117_subscription_id_idx;
ALTER INDEX public.delivery_done_dead ATTACH PARTITION public.delivery_done_d20261117_tenant_id_idx;
ALTER INDEX public.delivery_done_pkey ATTACH PARTITION public.delivery_done_d20261118_pkey;
ALTER INDEX public.delivery_done_subscription ATTACH PARTITION public.delivery_done_d20261118_subscription_id_idx;
ALTER INDEX public.delivery_done_dead ATTACH PARTITION public.delivery_done_d20261118_tenant_id_idx;
ALTER INDEX public.delivery_done_pkey ATTACH PARTITION public.delivery_done_d20261119_pkey;
ALTER INDEX public.delivery_done_subscription ATTACH PARTITION public.delivery_done_d20261119_subscription_id_idx;
ALTER INDEX public.delivery_done_dead ATTACH PARTITION public.delivery_done_d20261119_tenant_id_idx;
ALTER INDEX public.delivery_done_pkey ATTACH PARTITION public.delivery_done_rest_pkey;
ALTER INDEX public.delivery_done_subscription ATTACH PARTITION public.delivery_done_rest_subscription_id_idx;
ALTER INDEX public.delivery_done_dead ATTACH PARTITION public.delivery_done_rest_tenant_id_idx;
ALTER INDEX public.event_pkey ATTACH PARTITION public.event_d20261116_pkey;
ALTER INDEX public.event_pkey ATTACH PARTITION public.event_d20261117_pkey;
ALTER INDEX public.event_pkey ATTACH PARTITION public.event_d20261118_pkey;
ALTER INDEX public.event_pkey ATTACH PARTITION public.event_d20261119_pkey;
ALTER INDEX public.event_pkey ATTACH PARTITION public.event_rest_pkey;
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
ALTER TABLE ONLY public.certificate
    ADD CONSTRAINT certificate_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
ALTER TABLE ONLY public.client
    ADD CONSTRAINT client_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
ALTER TABLE ONLY public.key_use
    ADD CONSTRAINT key_use_key_fkey FOREIGN KEY (key) REFERENCES public.api_key(id);
ALTER TABLE ONLY public.profile
    ADD CONSTRAINT profile_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
ALTER TABLE ONLY public.subscription
    ADD CONSTRAINT subscription_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
ALTER TABLE ONLY public.topic
    ADD CONSTRAINT topic_tenant_fkey FOREIGN KEY (tenant) REFERENCES public.tenant(id);
