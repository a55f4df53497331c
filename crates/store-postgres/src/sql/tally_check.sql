-- Whether it is time to compare the tally with the rows, and this node's turn.
update tally_check set checked_at = clock_timestamp()
where checked_at < clock_timestamp() - interval '1 day'
