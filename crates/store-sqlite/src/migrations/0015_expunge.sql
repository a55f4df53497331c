-- What was removed for good, and when. Nearly always null, which costs a byte and no page.
alter table event add column expunged_at integer;
alter table attempt add column response_expunged_at integer;
