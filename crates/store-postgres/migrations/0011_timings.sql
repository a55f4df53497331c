-- How long the phases of an attempt took: milliseconds for name, connection, TLS and first byte, with commas between.
alter table attempt add column timings text;
