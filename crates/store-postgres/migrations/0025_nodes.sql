-- When a node was heard of last, and which version it runs. Nodes of an older version do not say so; what they write
-- leaves both as they are.
alter table node add column seen_at timestamptz;
alter table node add column version text not null default '';
