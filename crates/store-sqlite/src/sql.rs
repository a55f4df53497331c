//! The statements that matter for speed, with the plan each relies on. A test asks SQLite whether
//! it still chooses these plans.

/// What [`crate::read::rows::delivery`] decodes.
macro_rules! delivery_columns {
    () => {
        "d.seq, d.id, e.id, s.id, t.id, d.lane, d.state, d.due_at, d.attempts, d.budget_base, \
         d.budget_began, e.accepted_at, d.ended_at, s.deleted_at, d.event, d.revival, d.holds_lane, \
         d.subscription"
    };
}

/// The tables behind [`delivery_columns`]; `delivery d` comes before, with the index to use. The
/// joins are lookups by integer primary key, and `cross` keeps them inside.
macro_rules! delivery_joins {
    () => {
        " cross join event e on e.no = d.event \
         cross join subscription s on s.no = d.subscription \
         cross join tenant t on t.no = d.tenant "
    };
}

/// Which kind a delivery is of, as readers see it: 0 pending, 1 delivered, 2 dead, 3 cancelled.
macro_rules! kind {
    () => {
        "case when d.state < 2 then iif(s.deleted_at is null, 0, 3) \
         when d.state = 2 then 1 when d.state < 20 then 2 else 3 end"
    };
}

/// Filters on everything that has no index of its own, and cuts the page.
macro_rules! page_of_deliveries {
    () => {
        concat!(" and d.id < ?2 and (?3 is null or ?3 = ", kind!(), ") order by d.id desc limit ?4")
    };
}

// ---- catalog ---------------------------------------------------------------------------------

/// What [`crate::read::catalog`] decodes.
macro_rules! entries {
    () => {
        "select kind, key, tenant, version, unique_key, removed, document from entry "
    };
}

/// Search by primary key.
pub(crate) const ENTRY_BY_KEY: &str = concat!(entries!(), "where kind = ?1 and key = ?2");

/// Search by `entry_unique`.
pub(crate) const ENTRY_BY_UNIQUE: &str = concat!(entries!(), "where kind = ?1 and unique_key = ?2");

/// The whole of `entry_of_operators`.
pub(crate) const OPERATOR_KEYS: &str =
    concat!(entries!(), "indexed by entry_of_operators where tenant is null");

/// A range of `entry_by_version`.
pub(crate) const ENTRIES_SINCE: &str = concat!(entries!(), "where version > ?1");

pub(crate) const ENTRY_PUT: &str = "insert into entry (kind, key, tenant, version, unique_key, \
    removed, document) values (?1, ?2, ?3, ?4, ?5, ?6, ?7) on conflict (kind, key) do update set \
    version = excluded.version, unique_key = excluded.unique_key, removed = excluded.removed, \
    document = excluded.document";

// ---- accept ----------------------------------------------------------------------------------

/// Search by primary key.
pub(crate) const FIND_KEY: &str =
    "select fingerprint, event from idempotency where tenant = ?1 and key = ?2";

pub(crate) const INSERT_KEY: &str = "insert into idempotency values (?1, ?2, ?3, ?4, ?5)";

pub(crate) const INSERT_EVENT: &str = "insert into event (id, tenant, accepted_at, first_seq, \
    deliveries, topic, event_type, attributes, key, content_type, payload) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

pub(crate) const INSERT_DELIVERY: &str = "insert into delivery (seq, id, event, tenant, \
    subscription, state, due_at, attempts, budget_base) values (?1, ?2, ?3, ?4, ?5, 0, ?6, 0, 0)";

/// Parked when the lane is occupied: one search in `delivery_lane`.
pub(crate) const INSERT_IN_LANE: &str = "insert into delivery (seq, id, event, tenant, \
    subscription, state, due_at, attempts, budget_base, lane, holds_lane) \
    values (?1, ?2, ?3, ?4, ?5, 0, \
    iif(exists (select 1 from delivery d indexed by delivery_lane where d.subscription = ?5 \
    and d.lane = ?7 and d.holds_lane = 1), 9223372036854775807, ?6), 0, 0, ?7, 1) \
    returning due_at";

// ---- claim and record ------------------------------------------------------------------------

/// Search by `delivery_by_id`. The shard is the low part of the subscription's number; a parked
/// delivery is nobody's to work on.
pub(crate) const CLAIM: &str = "update delivery set state = 1, due_at = ?5 \
    where id = ?1 and attempts = ?2 and subscription % 64 = ?3 and state < 2 \
    and due_at < ?4 and revival = ?6";

/// The same, and what is needed for the attempt and the lane.
pub(crate) const RECORD: &str = "update delivery set state = ?5, due_at = ?6, \
    attempts = attempts + ?7, ended_at = ?8, holds_lane = iif(?9, null, holds_lane) \
    where id = ?1 and attempts = ?2 and subscription % 64 = ?3 and state < 2 \
    and due_at < ?4 and revival = ?10 returning seq, subscription, lane";

/// A success from an older copy counts, also when the delivery is parked by now. Search by
/// `delivery_by_id`.
pub(crate) const FIND_OLDER: &str = "select seq, subscription, lane, due_at from delivery \
    where id = ?1 and attempts = ?2 and subscription % 64 = ?3 and state < 2";

pub(crate) const RECORD_OLDER: &str = "update delivery set state = ?2, due_at = ?3, \
    attempts = attempts + ?4, ended_at = ?5, holds_lane = null, held_until = null where seq = ?1";

/// A repeat of what is there already is no news; what was late and is now written is not late.
pub(crate) const INSERT_ATTEMPT: &str = "insert into attempt (delivery, number, started_at, took, \
    late, status, failure, detail, response, timings) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
    on conflict do update set late = min(late, excluded.late)";

/// All of them: there are few.
pub(crate) const FAILING: &str = "select s.id, f.since, f.exhausted from failing f \
    cross join subscription s on s.no = f.subscription";

/// Of two reports of the same trouble the earlier counts.
pub(crate) const FAILING_BEGIN: &str = "insert into failing (subscription, since, exhausted) \
    values (?1, ?2, ?3) on conflict do update set since = min(since, excluded.since), \
    exhausted = max(exhausted, excluded.exhausted)";

pub(crate) const FAILING_END: &str = "delete from failing where subscription = ?1";

/// Search by `delivery_by_id`.
pub(crate) const FIND_BY_ID: &str = "select seq, subscription from delivery where id = ?1";

// ---- lanes -----------------------------------------------------------------------------------

/// First of `delivery_lane` for the lane: the rowid is the seq, so the order is for free.
pub(crate) const FIRST_OF_LANE: &str = "select seq, state, due_at from delivery \
    indexed by delivery_lane where subscription = ?1 and lane = ?2 and holds_lane = 1 \
    order by seq limit 1";

/// Who blocks a lane or heads it, besides `?3`: a range of `delivery_lane` up to the first that is not
/// parked. Those parked before a head are few.
pub(crate) const HEAD_OF_LANE: &str = "select seq, state, due_at, id, revival from delivery \
    indexed by delivery_lane where subscription = ?1 and lane = ?2 and holds_lane = 1 \
    and seq <> ?3 and (state >= 2 or due_at < 9223372036854775807) order by seq limit 1";

pub(crate) const PROMOTE: &str = "update delivery set due_at = max(?2, ifnull(held_until, ?2)), \
    held_until = null where seq = ?1";

/// The head of a lane has to wait for one that comes before it.
pub(crate) const DISPLACE: &str = "update delivery set state = 0, held_until = due_at, \
    due_at = 9223372036854775807, revival = revival + 1 where seq = ?1";

/// The first that is parked in a lane, besides `?3`: a range of `delivery_lane`, behind a head at most.
pub(crate) const FIRST_PARKED: &str = "select seq from delivery indexed by delivery_lane \
    where subscription = ?1 and lane = ?2 and holds_lane = 1 and seq <> ?3 and state = 0 \
    and due_at = 9223372036854775807 order by seq limit 1";

/// By hand. A search by the primary key.
pub(crate) const MOVE: &str = "update delivery set state = ?2, due_at = ?3, ended_at = ?4, \
    budget_base = ?5, budget_began = ?6, revival = ?7, held_until = null, \
    holds_lane = iif(?2 < 2 and lane is not null, 1, null) where seq = ?1";

// ---- work ------------------------------------------------------------------------------------

/// Skip scan: one search in `delivery_due` for each subscription with unfinished work, and one for
/// its earliest due time. What is behind the first entry is never touched.
pub(crate) const DUE_SUBSCRIPTIONS: &str = "with recursive step (subscription) as ( \
    select (select subscription from delivery indexed by delivery_due where state < 2 \
        order by subscription limit 1) \
    union all \
    select (select d.subscription from delivery d indexed by delivery_due where d.state < 2 \
        and d.subscription > step.subscription order by d.subscription limit 1) \
    from step where step.subscription is not null) \
    select s.no, s.id, (select d.due_at from delivery d indexed by delivery_due \
        where d.state < 2 and d.subscription = s.no order by d.due_at limit 1) \
    from step cross join subscription s on s.no = step.subscription where s.deleted_at is null";

/// A range of `delivery_due`, in its order.
pub(crate) const PENDING: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d indexed by delivery_due",
    delivery_joins!(),
    "where d.state < 2 and d.subscription = ?1 and d.due_at between ?2 and ?3 \
     order by d.due_at, d.seq limit ?4"
);

// ---- questions -------------------------------------------------------------------------------

pub(crate) const DELIVERY_BY_SEQ: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d",
    delivery_joins!(),
    "where d.seq = ?1"
);

/// Search by `delivery_by_id`.
pub(crate) const DELIVERY_BY_ID: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d indexed by delivery_by_id",
    delivery_joins!(),
    "where d.id = ?1 and d.tenant = (select no from tenant where id = ?2)"
);

/// The neighbours `?5 ..` of an event, by primary key.
pub(crate) const DELIVERIES_OF_EVENT: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d",
    delivery_joins!(),
    "where d.tenant = ?1 and d.seq >= ?5 and d.seq < ?6 and (?7 is null or d.subscription = ?7)",
    page_of_deliveries!()
);

/// `delivery_by_id` backwards; it holds the subscription, so others' rows are passed over cheaply.
pub(crate) const DELIVERIES_OF_SUBSCRIPTION: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d indexed by delivery_by_id",
    delivery_joins!(),
    "where d.tenant = ?1 and d.subscription = ?5",
    page_of_deliveries!()
);

/// A range of `delivery_dead_by_id`, backwards.
pub(crate) const DEAD_DELIVERIES: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d indexed by delivery_dead_by_id",
    delivery_joins!(),
    "where d.tenant = ?1 and d.state >= 10 and d.state < 20",
    page_of_deliveries!()
);

/// `delivery_by_id` backwards; it holds the tenant, so others' rows are passed over cheaply.
pub(crate) const DELIVERIES: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivery d indexed by delivery_by_id",
    delivery_joins!(),
    "where d.tenant = ?1",
    page_of_deliveries!()
);

/// Scans all deliveries.
pub(crate) const COUNT_DELIVERIES: &str = concat!(
    "select ",
    kind!(),
    ", count(*) from delivery d cross join subscription s on s.no = d.subscription \
     where ?1 is null or d.tenant = ?1 group by 1"
);

/// The whole of `delivery_due` and nothing else, in its order, then two lookups by primary key for
/// each subscription with unfinished work. A million entries take some 100 ms.
pub(crate) const PENDING_BY_SUBSCRIPTION: &str = "select t.id, w.waiting \
    from (select subscription, count(*) as waiting from delivery indexed by delivery_due \
        where state < 2 group by subscription) w \
    cross join subscription s on s.no = w.subscription cross join tenant t on t.no = s.tenant";

pub(crate) const ATTEMPTS: &str = "select delivery, number, started_at, took, late, status, \
    failure, detail, response, timings from attempt where delivery = ?1 order by number, started_at";

/// What [`crate::read::rows::event`] decodes.
macro_rules! event_columns {
    () => {
        "select e.no, e.id, t.id, e.accepted_at, e.topic, e.event_type, e.attributes, e.key, \
         e.content_type, e.payload from event e "
    };
}

pub(crate) const EVENT_BY_NO: &str =
    concat!(event_columns!(), "cross join tenant t on t.no = e.tenant where e.no = ?1");

/// Search by `event_by_id`.
pub(crate) const EVENT_BY_ID: &str = concat!(
    event_columns!(),
    "indexed by event_by_id cross join tenant t on t.no = e.tenant \
     where e.tenant = (select no from tenant where id = ?1) and e.id = ?2"
);

/// A range of `event_by_id`, backwards.
pub(crate) const EVENTS: &str = concat!(
    event_columns!(),
    "indexed by event_by_id cross join tenant t on t.no = e.tenant \
     where e.tenant = ?1 and e.id < ?2 and (?3 is null or e.topic = ?3) \
     and (?4 is null or e.event_type = ?4) order by e.id desc limit ?5"
);

// ---- maintenance -----------------------------------------------------------------------------

/// Whether an event may go: a range of deliveries by primary key. Some of them may have been
/// forgotten before.
macro_rules! prunable {
    () => {
        "(e.accepted_at < ?2 and not exists ( \
         select 1 from delivery d where d.seq >= e.first_seq \
         and d.seq < e.first_seq + e.deliveries and (d.state < 2 or d.holds_lane = 1 \
         or d.ended_at >= iif(d.state >= 10 and d.state < 20, ?3, ?2))))"
    };
}

/// A range of events by primary key.
pub(crate) const PRUNE_CANDIDATES: &str =
    concat!("select e.no, ", prunable!(), " from event e where e.no > ?1 order by e.no limit ?4");

pub(crate) const PRUNE_CHECK: &str =
    concat!("select e.first_seq, e.deliveries from event e where e.no = ?1 and ", prunable!());

/// A range of `idempotency_by_age`.
pub(crate) const PRUNE_KEYS: &str = "delete from idempotency where (tenant, key) in ( \
    select tenant, key from idempotency where accepted_at < ?1 order by accepted_at limit ?2)";

/// A range of `delivery_due`. All of a subscription at once, so it is said here what
/// `Delivery::cancelled` says of one.
pub(crate) const SWEEP: &str = "update delivery set state = ?3, ended_at = ?2, \
    due_at = 9223372036854775807, holds_lane = null where seq in ( \
    select seq from delivery indexed by delivery_due where subscription = ?1 and state < 2 \
    limit ?4)";

/// A range of `delivery_lane`: dead letters that no longer block anybody.
pub(crate) const SWEEP_BLOCKERS: &str = "update delivery set holds_lane = null where seq in ( \
    select seq from delivery indexed by delivery_lane where subscription = ?1 and holds_lane = 1)";

/// A range of `redrive_ended`.
pub(crate) const PRUNE_REDRIVES: &str = "delete from redrive where id in ( \
    select id from redrive indexed by redrive_ended where state <> 0 and finished_at < ?1 \
    order by finished_at limit ?2)";

/// A range of `recall_by_age`.
pub(crate) const PRUNE_RECALLS: &str = "delete from recall where no in ( \
    select no from recall indexed by recall_by_age where at < ?1 order by at limit ?2)";

/// Written in the order of versions.
pub(crate) const INSERT_RECALL: &str = "insert into recall (version, subscription, delivery, \
    revival, at) values (?1, ?2, ?3, ?4, ?5)";

/// A range of `recall_by_version`; the rowid keeps the order within one.
pub(crate) const RECALLS_SINCE: &str = "select version, subscription, delivery, revival from recall \
    indexed by recall_by_version where version > ?1 order by version, no";

// ---- redrives --------------------------------------------------------------------------------

/// Which dead letters a redrive wants: a range of `delivery_dead`, whose rowid is the seq.
macro_rules! redrivable {
    () => {
        " from delivery d indexed by delivery_dead \
         cross join subscription s on s.no = d.subscription \
         where d.tenant = ?1 and d.state >= 10 and d.state < 20 and d.seq > ?2 \
         and s.deleted_at is null and (?3 is null or s.id = ?3) and (?4 is null or d.state = ?4) \
         and (?5 is null or d.ended_at >= ?5) and (?6 is null or d.ended_at < ?6)"
    };
}

pub(crate) const COUNT_REDRIVABLE: &str = concat!("select count(*)", redrivable!());

pub(crate) const REDRIVABLE: &str =
    concat!("select d.seq, s.id", redrivable!(), " order by d.seq limit ?7");

#[cfg(test)]
pub(crate) mod tests;
