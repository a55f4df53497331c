-- Everything that can be seen now is on the standby as well once this is committed: a commit with something to write
-- waits for it. Nothing is written where no standby is waited for.
select pg_logical_emit_message(true, 'posthorn', '') is not null as written
where current_setting('synchronous_standby_names') <> ''
