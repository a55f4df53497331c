-- What an attempt that failed sent, without secrets, as JSON; see `SentRequest` of the domain.
alter table attempt add column request text;
