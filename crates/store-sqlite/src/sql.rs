//! The statements that matter for speed, with the plan each relies on. A test asks SQLite whether
//! it still chooses these plans.

/// What [`crate::read::rows::delivery`] decodes.
macro_rules! delivery_columns {
    () => {
        "d.seq, d.id, e.id, s.id, t.id, d.lane, d.state, d.due_at, d.attempts, d.budget_base, \
         d.budget_began, e.accepted_at, d.ended_at, s.deleted_at, d.event, d.revival, d.holds_lane, \
         d.subscription, d.outcome, d.tenant, e.deliver_at, e.expunged_at"
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

// ---- catalog ---------------------------------------------------------------------------------

/// What [`crate::read::catalog`] decodes.
macro_rules! entries {
    () => {
        "select kind, key, tenant, version, unique_key, removed, document, alias, realm from entry "
    };
}

/// Search by primary key.
pub(crate) const ENTRY_BY_KEY: &str = concat!(entries!(), "where kind = ?1 and key = ?2");

/// Search by `entry_unique`.
pub(crate) const ENTRY_BY_UNIQUE: &str = concat!(entries!(), "where kind = ?1 and unique_key = ?2");

/// Search by `entry_alias`.
pub(crate) const ENTRY_BY_ALIAS: &str = concat!(entries!(), "where kind = ?1 and alias = ?2");

/// The first of `entry_in_realm`.
pub(crate) const ENTRY_IN_REALM: &str = concat!(entries!(), "where realm = ?1 limit 1");

/// A range of `entry_of_operators`.
pub(crate) const OPERATOR_KEYS: &str =
    concat!(entries!(), "indexed by entry_of_operators where kind = 'key' and tenant is null");

/// A range of `entry_by_version`.
pub(crate) const ENTRIES_SINCE: &str = concat!(entries!(), "where version > ?1");

pub(crate) const ENTRY_PUT: &str = "insert into entry (kind, key, tenant, version, unique_key, \
    removed, document, alias, realm) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
    on conflict (kind, key) do update set \
    version = excluded.version, unique_key = excluded.unique_key, removed = excluded.removed, \
    document = excluded.document, alias = excluded.alias, realm = excluded.realm";

// ---- tenants that are deleted ----------------------------------------------------------------

/// Search by `subscription_of_tenant`.
pub(crate) const SUBSCRIPTIONS_OF_TENANT: &str =
    "select id from subscription where tenant = ?1 and deleted_at is null limit ?2";

/// A range of `event_by_id`.
pub(crate) const EVENTS_OF_TENANT: &str = "select first_seq, deliveries, retention, no from event \
    indexed by event_by_id where tenant = ?1 limit ?2";

/// A range of the primary key.
pub(crate) const FORGET_KEYS_OF_TENANT: &str = "delete from idempotency where (tenant, key) in \
    (select tenant, key from idempotency where tenant = ?1 limit ?2)";

/// Search by `entry_of_tenant`.
pub(crate) const ENTRIES_OF_TENANT: &str =
    "select kind, key from entry where tenant = ?1 and kind <> 'tenant' limit ?2";

/// Ranges of `rollup_scope` and `rollup_hour_scope`.
pub(crate) const ROLLUPS_OF: &str = "delete from rollup where (at, scope, node) in ( \
    select at, scope, node from rollup indexed by rollup_scope \
    where scope > '' and scope between ?1 and ?2 limit ?3)";
pub(crate) const ROLLUP_HOURS_OF: &str = "delete from rollup_hour where (at, scope) in ( \
    select at, scope from rollup_hour indexed by rollup_hour_scope \
    where scope > '' and scope between ?1 and ?2 limit ?3)";

// ---- accept ----------------------------------------------------------------------------------

/// Search by primary key.
pub(crate) const FIND_KEY: &str =
    "select fingerprint, event from idempotency where tenant = ?1 and key = ?2";

pub(crate) const INSERT_KEY: &str = "insert into idempotency \
    (tenant, key, fingerprint, event, accepted_at) values (?1, ?2, ?3, ?4, ?5)";

pub(crate) const INSERT_REDRIVE: &str = "insert into redrive \
    (id, tenant, filter, per_second, state, total, moved, cursor, created_at, finished_at) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9)";

/// A delivery that is not among those that were made with its event.
pub(crate) const INSERT_LATER: &str =
    "insert into later_delivery (event, seq, subscription) values (?1, ?2, ?3)";

pub(crate) const INSERT_EVENT: &str = "insert into event (id, tenant, accepted_at, first_seq, \
    deliveries, topic, event_type, attributes, key, content_type, payload, no, publisher_id, \
    deliver_at, retention, trace) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

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
    attempts = attempts + ?7, ended_at = ?8, holds_lane = iif(?9, null, holds_lane), \
    outcome = ifnull(?11, outcome) \
    where id = ?1 and attempts = ?2 and subscription % 64 = ?3 and state < 2 \
    and due_at < ?4 and revival = ?10 returning seq, subscription, lane, event";

/// A success from an older copy counts, also when the delivery is parked by now. Search by
/// `delivery_by_id`.
pub(crate) const FIND_OLDER: &str = "select seq, subscription, lane, event, due_at from delivery \
    where id = ?1 and attempts = ?2 and subscription % 64 = ?3 and state < 2";

pub(crate) const RECORD_OLDER: &str = "update delivery set state = ?2, due_at = ?3, \
    attempts = attempts + ?4, ended_at = ?5, holds_lane = null, held_until = null, \
    outcome = ifnull(?6, outcome) where seq = ?1";

/// A repeat of what is there already is no news; what was late and is now written is not late.
pub(crate) const INSERT_ATTEMPT: &str = "insert into attempt (delivery, number, started_at, took, \
    late, status, failure, detail, response, timings, no, subscription, manual, request) \
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
    on conflict (delivery, number, started_at) do update set late = min(late, excluded.late)";

/// All of them: there are few.
pub(crate) const FAILING: &str = "select s.id, f.since, f.exhausted, f.told from failing f \
    cross join subscription s on s.no = f.subscription";

/// Of two reports of the same trouble the earlier counts.
pub(crate) const FAILING_BEGIN: &str = "insert into failing (subscription, since, exhausted, told) \
    values (?1, ?2, ?3, ?4) on conflict do update set since = min(since, excluded.since), \
    exhausted = max(exhausted, excluded.exhausted), told = max(told, excluded.told)";

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

/// Who enters a lane now: a range of `scheduled_by_time`, whose rowid is the seq.
pub(crate) const SCHEDULED: &str = "select w.seq, d.id, d.event, d.tenant, d.subscription, s.id, w.lane, w.at \
    from scheduled w indexed by scheduled_by_time cross join delivery d on d.seq = w.seq \
    cross join subscription s on s.no = d.subscription where w.at <= ?1 order by w.at, w.seq limit ?2";

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

/// Which deliveries of an event may be meant: a range of the primary key, and those that were made later.
pub(crate) const SEQS_OF_EVENT: &str = "select seq from delivery where seq >= ?1 and seq < ?2 \
    and seq >= ?7 and seq < ?8 \
    and (?3 is null or subscription = ?3) and state between ?4 and ?5 \
    union all \
    select l.seq from later_delivery l cross join delivery d on d.seq = l.seq \
    where l.event = ?6 and l.seq >= ?7 and l.seq < ?8 \
    and (?3 is null or l.subscription = ?3) and d.state between ?4 and ?5 order by 1";

/// A range of `delivery_dead`, whose rowid is the seq.
pub(crate) const DEAD_SEQS: &str = "select seq from delivery indexed by delivery_dead \
    where tenant = ?1 and state >= 10 and state < 20 and seq >= ?2 and seq < ?3 order by seq";

/// All of `delivery_in_flight` that is the tenant's: few, since they are all under way.
pub(crate) const IN_FLIGHT_SEQS: &str = "select seq from delivery indexed by delivery_in_flight \
    where tenant = ?1 and state = 1 and seq >= ?2 and seq < ?3 order by seq";

/// A range of the primary key of `dead_event`.
pub(crate) const EVENTS_WITH_DEAD: &str = "select event from dead_event \
    where tenant = ?1 and event >= ?2 and event < ?3 order by event";

/// What decides whether a delivery may be meant, in its own row.
pub(crate) const DELIVERY_GLANCE: &str = "select seq, tenant, subscription, state, outcome, event from delivery where seq between ?1 and ?2 \
     order by seq";

/// The same of an attempt; a lookup in the few rows of subscriptions.
pub(crate) const ATTEMPT_GLANCE: &str = "select a.no, s.tenant, a.subscription, a.started_at, a.manual, \
    a.status, a.failure from attempt a cross join subscription s on s.no = a.subscription \
    where a.no between ?1 and ?2 order by a.no";

/// What decides whether an event is meant, without its payload.
pub(crate) const EVENT_GLANCE: &str = "select no, tenant, accepted_at, topic, event_type, key, publisher_id, \
    attributes, deliveries from event where no between ?1 and ?2 order by no";

/// A row of `tally`, or all of them.
pub(crate) const COUNTS: &str = "select coalesce(sum(events), 0), coalesce(sum(pending), 0), \
    coalesce(sum(delivered), 0), coalesce(sum(dead), 0), coalesce(sum(cancelled), 0) from tally";

/// The same of one tenant.
pub(crate) const COUNTS_OF_TENANT: &str =
    "select events, pending, delivered, dead, cancelled from tally where tenant = ?1";

/// What the tally calls pending though nobody waits for it any more: a range of `delivery_due` for each deleted
/// subscription that is not swept yet. Nearly always none.
pub(crate) const UNSWEPT: &str = "select count(*) from subscription s indexed by subscription_unswept \
    cross join delivery d indexed by delivery_due on d.subscription = s.no and d.state < 2 \
    where s.deleted_at is not null and s.swept = 0 and (?1 is null or s.tenant = ?1)";

pub(crate) const PENDING_BY_TENANT: &str = "select t.id, w.pending from tally w cross join tenant t on t.no = w.tenant where w.pending > 0";

/// All unfinished work, in the order of `delivery_due`.
pub(crate) const PENDING_BY_SUBSCRIPTION: &str = "select t.id, s.id, w.number \
    from (select subscription, count(*) as number from delivery indexed by delivery_due \
        where state < 2 group by subscription) w \
    cross join subscription s on s.no = w.subscription cross join tenant t on t.no = s.tenant \
    where s.deleted_at is null";

/// What is late replaces nothing.
pub(crate) const ROLLUP_PUT: &str = "insert into rollup (at, scope, node, number, counts) \
    values (?1, ?2, ?3, ?4, ?5) on conflict do update set number = excluded.number, \
    counts = excluded.counts where number < excluded.number";

pub(crate) const ROLLUP_MINUTE: &str =
    "select node, counts from rollup where at = ?1 and scope = ?2";

pub(crate) const ROLLUP_HOUR: &str =
    "select at, counts from rollup_hour where at = ?1 and scope = ?2";

/// The two ends are asked for apart: both in one question are looked for in all rows.
pub(crate) const ROLLUP_BOUNDS: &str =
    "select (select min(at) from rollup), (select max(at) from rollup)";
/// The same of hours.
pub(crate) const ROLLUP_HOUR_BOUNDS: &str =
    "select (select min(at) from rollup_hour), (select max(at) from rollup_hour)";
/// All scopes of a kind at one moment: neighbours.
pub(crate) const ROLLUP_KIND_MINUTE: &str =
    "select scope, node, counts from rollup where at = ?1 and scope >= ?2 and scope < ?3";
pub(crate) const ROLLUP_KIND_HOUR: &str =
    "select scope, counts from rollup_hour where at = ?1 and scope >= ?2 and scope < ?3";
pub(crate) const ROLLUP_HOUR_PUT: &str = "insert into rollup_hour (at, scope, counts) \
    values (?1, ?2, ?3) on conflict do update set counts = excluded.counts";

/// The next rows that are to be added to their hours.
pub(crate) const ROLLUP_DUE: &str = "select at, scope, node, counts from rollup \
    where (at, scope, node) > (?1, ?2, ?3) and at < ?4 order by at, scope, node limit ?5";

pub(crate) const ROLLUP_PRUNE: &str = "delete from rollup where (at, scope, node) in ( \
    select at, scope, node from rollup where at < ?1 order by at, scope, node limit ?2)";

pub(crate) const ROLLUP_HOUR_PRUNE: &str = "delete from rollup_hour where (at, scope) in ( \
    select at, scope from rollup_hour where at < ?1 order by at, scope limit ?2)";

/// What [`crate::read::rows::attempt`] decodes; `delivery d` comes along.
macro_rules! attempt_columns {
    () => {
        attempt_columns!("a.response", "a.request")
    };
    ($response:literal, $request:literal) => {
        concat!(
            "select a.no, a.number, a.started_at, a.took, a.late, a.status, a.failure, a.detail, ",
            $response,
            ", a.timings, a.manual, a.response_expunged_at, ",
            $request
        )
    };
}

/// A range of `attempt_of`.
pub(crate) const ATTEMPTS: &str = concat!(
    attempt_columns!(),
    " from attempt a indexed by attempt_of where a.delivery = ?1 order by a.number, a.started_at"
);

/// One of them with what it belongs to: lookups by primary keys.
pub(crate) const ATTEMPT_LINE: &str = concat!(
    attempt_columns!(),
    ", d.id, e.id, s.id from attempt a cross join delivery d on d.seq = a.delivery \
     cross join event e on e.no = d.event cross join subscription s on s.no = a.subscription where a.no = ?1"
);

/// The same, with the state of its delivery, and without what may be large.
pub(crate) const ATTEMPT_MADE: &str = concat!(
    attempt_columns!("x''", "null"),
    ", d.id, e.id, s.id, d.state from attempt a cross join delivery d on d.seq = a.delivery \
     cross join event e on e.no = d.event cross join subscription s on s.no = a.subscription where a.no = ?1"
);

/// Where the log ends.
pub(crate) const EVENTS_END: &str = "select coalesce(max(no), 0) from event";
pub(crate) const ATTEMPTS_END: &str = "select coalesce(max(no), 0) from attempt";

/// What comes after a row, and whose it is: ranges of primary keys.
pub(crate) const EVENTS_AFTER: &str =
    "select no, tenant from event where no > ?1 order by no limit ?2";
pub(crate) const ATTEMPTS_AFTER: &str = "select a.no, d.tenant from attempt a \
    cross join delivery d on d.seq = a.delivery where a.no > ?1 order by a.no limit ?2";

/// The first from a number on, and when it was.
pub(crate) const EVENT_FROM: &str =
    "select no, accepted_at from event where no >= ?1 order by no limit 1";
pub(crate) const ATTEMPT_FROM: &str =
    "select no, started_at from attempt where no >= ?1 order by no limit 1";

/// Which attempts belong to an event: `attempt_of` alone.
pub(crate) const ATTEMPTS_OF_EVENT: &str = "select no from attempt indexed by attempt_of where delivery >= ?1 and delivery < ?2 \
     union all select a.no from later_delivery l \
     cross join attempt a indexed by attempt_of on a.delivery = l.seq where l.event = ?3";
/// What [`crate::read::rows::event`] decodes.
macro_rules! event_columns {
    () => {
        event_columns!("e.payload", "")
    };
    ($payload:literal, $more:literal) => {
        concat!(
            "select e.no, e.id, t.id, e.accepted_at, e.topic, e.event_type, e.attributes, e.key, \
             e.content_type, ",
            $payload,
            ", e.publisher_id, e.deliver_at, e.retention, e.expunged_at, e.trace",
            $more,
            " from event e "
        )
    };
}

/// The same without its payload, and how large that is: SQLite tells without reading it.
pub(crate) const EVENT_LINE: &str = concat!(
    event_columns!("x''", ", length(e.payload)"),
    "cross join tenant t on t.no = e.tenant where e.no = ?1"
);

pub(crate) const EVENT_BY_NO: &str =
    concat!(event_columns!(), "cross join tenant t on t.no = e.tenant where e.no = ?1");

/// Search by `event_by_id`.
pub(crate) const EVENT_BY_ID: &str = concat!(
    event_columns!(),
    "indexed by event_by_id cross join tenant t on t.no = e.tenant \
     where e.tenant = (select no from tenant where id = ?1) and e.id = ?2"
);

/// The first of a tenant from an id on: a range of `event_by_id`.
pub(crate) const EVENT_FROM_ID: &str = "select no from event indexed by event_by_id \
    where tenant = ?1 and id >= ?2 order by id limit 1";

// ---- jobs ------------------------------------------------------------------------------------

/// Search by primary keys.
pub(crate) const LATER_DELIVERY: &str = "select d.seq, d.state from later_delivery l \
    cross join delivery d on d.seq = l.seq where l.event = ?1 and l.subscription = ?2";

/// A range of the primary key.
pub(crate) const DELIVERIES_OF_EVENT: &str =
    "select subscription, seq from delivery where seq >= ?1 and seq < ?2";

/// The states of the deliveries of an event, as readers see them: a range of the primary key, and those that were made later.
pub(crate) const STATES_OF_EVENT: &str = "select \
    case when d.state < 2 and s.deleted_at is not null then 20 else d.state end \
    from delivery d cross join subscription s on s.no = d.subscription \
    where d.seq >= ?1 and d.seq < ?2 \
    union all \
    select case when d.state < 2 and s.deleted_at is not null then 20 else d.state end \
    from later_delivery l cross join delivery d on d.seq = l.seq \
    cross join subscription s on s.no = d.subscription where l.event = ?3 limit ?4";

/// A search by `event_by_id`, and a range of the primary key of `later_delivery`.
pub(crate) const FAN_OUT: &str = "select e.deliveries + \
    (select count(*) from later_delivery l where l.event = e.no) \
    from event e where e.tenant = ?1 and e.id = ?2";

// ---- removing what was said ------------------------------------------------------------------

/// Whether an event has a delivery that has not ended: a range of the primary key, and those that were made later.
/// Nobody waits any more for those of deleted subscriptions.
pub(crate) const UNFINISHED: &str = "select exists (select 1 from delivery d \
    cross join subscription s on s.no = d.subscription \
    where d.seq >= ?1 and d.seq < ?2 and d.state < 2 and s.deleted_at is null) \
    or exists (select 1 from later_delivery l cross join delivery d on d.seq = l.seq \
    cross join subscription s on s.no = d.subscription \
    where l.event = ?3 and d.state < 2 and s.deleted_at is null)";

/// A search by the primary key.
pub(crate) const EXPUNGE_EVENT: &str =
    "update event set payload = x'', expunged_at = ?2 where no = ?1 and expunged_at is null";

/// A range of `attempt_of`.
pub(crate) const EXPUNGE_RESPONSES: &str = "update attempt indexed by attempt_of \
    set response = null, detail = null, response_expunged_at = ?3 \
    where delivery >= ?1 and delivery < ?2 and response_expunged_at is null";

/// Removes what attempts had sent.
pub(crate) const EXPUNGE_SENT: &str = "update attempt indexed by attempt_of set request = null \
    where delivery >= ?1 and delivery < ?2 and request is not null";

/// The same of one attempt, and late ones of its number.
pub(crate) const EXPUNGE_RESPONSE: &str = "update attempt indexed by attempt_of \
    set response = null, detail = null, response_expunged_at = ?3 \
    where delivery = ?1 and number = ?2 and response_expunged_at is null";

// ---- maintenance -----------------------------------------------------------------------------

/// Whether an event may go: a range of deliveries by primary key. Some of them may have been
/// forgotten before.
macro_rules! prunable {
    () => {
        "(ifnull(e.deliver_at, e.accepted_at) < ?2 and not exists ( \
         select 1 from delivery d where d.seq >= e.first_seq \
         and d.seq < e.first_seq + e.deliveries and (d.state < 2 or d.holds_lane = 1 \
         or d.ended_at >= iif(d.state >= 10 and d.state < 20, ?3, ?2))) \
         and not exists ( \
         select 1 from later_delivery l cross join delivery d on d.seq = l.seq \
         where l.event = e.no and (d.state < 2 or d.holds_lane = 1 \
         or d.ended_at >= iif(d.state >= 10 and d.state < 20, ?3, ?2))))"
    };
}

/// A range of events by primary key.
pub(crate) const PRUNE_CANDIDATES: &str =
    concat!("select e.no, ", prunable!(), " from event e where e.no > ?1 order by e.no limit ?4");

pub(crate) const PRUNE_CHECK: &str = concat!(
    "select e.first_seq, e.deliveries, e.retention from event e where e.no = ?1 and ",
    prunable!()
);

/// Remembers before when history was removed for its age.
pub(crate) const PRUNED: &str =
    "update store set pruned_before = max(?1, ifnull(pruned_before, ?1))";

/// The same of one whose own retention is over: nothing of it may be unfinished or block its lane. A range of
/// deliveries by primary key.
pub(crate) const EXPIRED_CHECK: &str = "select e.first_seq, e.deliveries, e.retention, not exists ( \
    select 1 from delivery d where d.seq >= e.first_seq \
    and d.seq < e.first_seq + e.deliveries and (d.state < 2 or d.holds_lane = 1)) \
    and not exists ( \
    select 1 from later_delivery l cross join delivery d on d.seq = l.seq \
    where l.event = e.no and (d.state < 2 or d.holds_lane = 1)), \
    ifnull(e.deliver_at, e.accepted_at) + e.retention from event e where e.no = ?1";

/// A range of `expiry_by_time`.
pub(crate) const EXPIRED: &str =
    "select event from expiry indexed by expiry_by_time where at <= ?1 order by at limit ?2";

/// A range of `idempotency_by_age`.
pub(crate) const PRUNE_KEYS: &str = "delete from idempotency where (tenant, key) in ( \
    select tenant, key from idempotency where accepted_at < ?1 order by accepted_at limit ?2)";

/// A range of `delivery_due`. All of a subscription at once, so it is said here what
/// `Delivery::cancelled` says of one.
pub(crate) const SWEEP: &str = "update delivery set state = ?3, ended_at = ?2, \
    due_at = 9223372036854775807, holds_lane = null, held_until = null where seq in ( \
    select seq from delivery indexed by delivery_due where subscription = ?1 and state < 2 \
    limit ?4) returning seq, tenant";

/// A range of `delivery_lane`: dead letters that no longer block anybody.
pub(crate) const SWEEP_BLOCKERS: &str = "update delivery set holds_lane = null where seq in ( \
    select seq from delivery indexed by delivery_lane where subscription = ?1 and holds_lane = 1)";

/// A range of `redrive_ended`.
pub(crate) const PRUNE_REDRIVES: &str = "delete from redrive where id in ( \
    select id from redrive indexed by redrive_ended where state <> 0 and finished_at < ?1 \
    order by finished_at limit ?2)";

/// A range of `job_ended`.
pub(crate) const PRUNE_JOBS: &str = "delete from job where id in ( \
    select id from job indexed by job_ended where state <> 0 and finished_at < ?1 \
    order by finished_at limit ?2)";

/// A range of `recall_by_age`.
pub(crate) const PRUNE_RECALLS: &str = "delete from recall where no in ( \
    select no from recall indexed by recall_by_age where at < ?1 order by at limit ?2)";

pub(crate) const AUDIT_PUT: &str = "insert into audit (id, tenant, realm, actor, action, noun, \
    object, document) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// The beginning of the log.
pub(crate) const PRUNE_AUDIT: &str = "delete from audit where id in ( \
    select id from audit where id < ?1 order by id limit ?2)";

/// A range of `audit_tenant`, of which one line stays.
pub(crate) const AUDIT_OF_TENANT: &str = "delete from audit where id in ( \
    select id from audit indexed by audit_tenant where tenant = ?1 and action <> ?2 limit ?3)";

// ---- sessions of pages -----------------------------------------------------------------------

pub(crate) const SESSION_PUT: &str = "insert into page_session (id, kind, tenant, realm, key, label, \
    expires_at, document) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

pub(crate) const SESSION_FIND: &str = "select document from page_session where id = ?1";

pub(crate) const SESSION_END: &str = "delete from page_session where id = ?1";

pub(crate) const SESSIONS_OF_KEY: &str = "delete from page_session where id in ( \
    select id from page_session indexed by page_session_key where key = ?1)";

pub(crate) const SESSIONS_LABELLED: &str = "delete from page_session where id in ( \
    select id from page_session indexed by page_session_label where tenant = ?1 and label = ?2)";

pub(crate) const SESSIONS_OF_TENANT: &str = "delete from page_session where id in ( \
    select id from page_session indexed by page_session_tenant where tenant = ?1 limit ?2)";

/// All that a tenant has, which its quota bounds.
pub(crate) const COUNT_SESSIONS: &str = "select count(*) from page_session \
    indexed by page_session_tenant where tenant = ?1 and expires_at > ?2";

/// The beginning of `page_session_expiry`.
pub(crate) const SESSION_OVER: &str = "select 1 from page_session indexed by page_session_expiry \
    where expires_at < ?1 limit 1";

pub(crate) const PRUNE_SESSIONS: &str = "delete from page_session where id in ( \
    select id from page_session indexed by page_session_expiry where expires_at < ?1 \
    order by expires_at, id limit ?2)";

// ---- recalls ---------------------------------------------------------------------------------

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
         cross join event e on e.no = d.event \
         where d.tenant = ?1 and d.state >= 10 and d.state < 20 and d.seq > ?2 \
         and e.expunged_at is null and s.deleted_at is null and (?3 is null or s.id = ?3) and (?4 is null or d.state = ?4) \
         and (?5 is null or d.ended_at >= ?5) and (?6 is null or d.ended_at < ?6)"
    };
}

pub(crate) const COUNT_REDRIVABLE: &str = concat!("select count(*)", redrivable!());

pub(crate) const REDRIVABLE: &str =
    concat!("select d.seq, s.id", redrivable!(), " order by d.seq limit ?7");

mod kept_answers;
pub(crate) use kept_answers::*;

#[cfg(test)]
pub(crate) mod tests;
