-- What failed attempts came to, in their indexes: one status or failure of many is a range. The text of a status has
-- three digits, so that texts of statuses are in the order of statuses.
drop index attempt_failed;
drop index attempt_failed_to;
create index attempt_failed on attempt (
    tenant, (coalesce(status::text, failure) collate "C"), started_at, no
) where (status between 200 and 299) is not true;
create index attempt_failed_to on attempt (
    subscription, (coalesce(status::text, failure) collate "C"), started_at, no
) where (status between 200 and 299) is not true;

-- Kinds within a key, and within what nobody wanted.
drop index event_key;
create index event_key on event (tenant, key, kind, id) where key is not null;
create index event_unwanted_kind on event (tenant, kind, id) where unwanted;

-- Written leases by subscription.
drop index delivery_live_leased;
create index delivery_live_leased on delivery_live (tenant, subscription, id) where state = 1;

-- So that figures of a tenant can be removed with it. Rows are inserted once and then only replaced, which touches no
-- index. Every row fulfils the condition; who reads by time does not say it, and so is not tempted.
create index rollup_scope on rollup (scope) where scope > '';
create index rollup_hour_scope on rollup_hour (scope) where scope > '';

-- Before when history was removed for its age. No row while nothing was.
create table pruned (
    one boolean primary key default true check (one),
    before bigint not null
);

-- Subscriptions that a tenant has had, deleted ones included.
create index subscription_ever on subscription (tenant);
