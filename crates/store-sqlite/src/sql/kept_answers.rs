//! Statements about kept answers.

/// A look by the key.
pub(crate) const ANSWER_FIND: &str = "select seed_at, seed, holder, until, expires_at, status, body \
    from kept_answer where key = ?1";

/// Also in place of one whose time is over.
pub(crate) const ANSWER_PUT: &str = "insert or replace into kept_answer (key, seed_at, seed, holder, \
    until, expires_at) values (?1, ?2, ?3, ?4, ?5, ?6)";

pub(crate) const ANSWER_TAKE: &str =
    "update kept_answer set holder = ?2, until = ?3 where key = ?1";

pub(crate) const ANSWER_KEEP: &str = "update kept_answer set holder = null, until = null, \
    status = ?2, body = ?3 where key = ?1 and status is null";

pub(crate) const ANSWER_RELEASE: &str = "update kept_answer set holder = null, until = null \
    where key = ?1 and holder = ?2 and status is null";

/// All of `kept_answer_held`: as many as there were requests at work when the file was last in use.
pub(crate) const ANSWER_CLEAR: &str = "update kept_answer set holder = null, until = null \
    where key in (select key from kept_answer indexed by kept_answer_held where until is not null)";

/// The beginning of `kept_answer_expiry`.
pub(crate) const ANSWER_OVER: &str = "select 1 from kept_answer indexed by kept_answer_expiry \
    where expires_at < ?1 limit 1";

pub(crate) const PRUNE_ANSWERS: &str = "delete from kept_answer where key in ( \
    select key from kept_answer indexed by kept_answer_expiry where expires_at < ?1 \
    order by expires_at, key limit ?2)";
