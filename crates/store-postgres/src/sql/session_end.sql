-- Plan: the primary key. With a kind, only one of that.
delete from page_session where id = $1 and ($2::text is null or kind = $2::text)
