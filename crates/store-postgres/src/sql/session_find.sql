-- Plan: the primary key. Asked for every request of a page.
select id, document from page_session where id = $1
