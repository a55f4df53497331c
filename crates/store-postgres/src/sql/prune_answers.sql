-- Plan: the beginning of kept_answer_expiry.
delete from kept_answer where key = any(array(
    select key from kept_answer where expires_at < $1::int8 order by expires_at, key limit $2::int8
))
