//! SQLite still chooses the plans the statements rely on.

use rusqlite::Connection;

use super::*;

pub(crate) fn database() -> Connection {
    let mut conn = Connection::open_in_memory().expect("a database");
    crate::migrate::migrate(&mut conn, &crate::migrate::SCHEMA).expect("the schema");
    conn
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("explain query plan {sql}")).expect(sql);
    // Unbound parameters are null, which is fine for a plan.
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().expect("a plan") {
        lines.push(row.get::<_, String>(3).expect("a line"));
    }
    lines
}

#[track_caller]
pub(crate) fn check(conn: &Connection, sql: &str, wanted: &[&str]) {
    let plan = plan(conn, sql);
    for part in wanted {
        assert!(plan.iter().any(|line| line.contains(part)), "{part} in {plan:#?}\nof {sql}");
    }
    for line in &plan {
        assert!(!line.contains("TEMP B-TREE"), "no sorting: {plan:#?}\nof {sql}");
    }
}

#[test]
fn hot_statements_search_by_id() {
    let conn = database();
    for sql in [CLAIM, RECORD, FIND_OLDER, FIND_BY_ID, DELIVERY_BY_ID] {
        check(&conn, sql, &["INDEX delivery_by_id (id=?"]);
    }
    check(&conn, FIND_KEY, &["USING PRIMARY KEY (tenant=? AND key=?)"]);
    check(&conn, EVENT_BY_ID, &["USING INDEX event_by_id (tenant=? AND id=?)"]);
    check(&conn, EVENT_BY_NO, &["e USING INTEGER PRIMARY KEY"]);
    check(&conn, ATTEMPTS, &["INDEX attempt_of (delivery=?)"]);
}

#[test]
fn entries_are_found_by_their_indexes() {
    let conn = database();
    check(&conn, ENTRY_BY_KEY, &["INDEX sqlite_autoindex_entry_1 (kind=? AND key=?)"]);
    check(&conn, ENTRY_BY_UNIQUE, &["INDEX entry_unique (kind=? AND unique_key=?)"]);
    check(&conn, ENTRY_BY_ALIAS, &["INDEX entry_alias (kind=? AND alias=?)"]);
    check(&conn, ENTRY_IN_REALM, &["INDEX entry_in_realm (realm=?)"]);
    check(&conn, OPERATOR_KEYS, &["INDEX entry_of_operators (kind=?)"]);
    check(&conn, ENTRIES_SINCE, &["INDEX entry_by_version (version>?)"]);
}

#[test]
fn what_a_deleted_tenant_has_is_found_by_its_indexes() {
    let conn = database();
    check(&conn, SUBSCRIPTIONS_OF_TENANT, &["INDEX subscription_of_tenant (tenant=?)"]);
    check(&conn, EVENTS_OF_TENANT, &["INDEX event_by_id (tenant=?)"]);
    check(&conn, FORGET_KEYS_OF_TENANT, &["SEARCH idempotency USING PRIMARY KEY (tenant=?)"]);
    check(&conn, ENTRIES_OF_TENANT, &["INDEX entry_of_tenant (tenant=?)"]);
    for (sql, table) in [(ROLLUPS_OF, "rollup"), (ROLLUP_HOURS_OF, "rollup_hour")] {
        check(&conn, sql, &[&format!("INDEX {table}_scope (scope>? AND scope<?)")]);
    }
}

/// What stands behind a large value is reached only by reading all of it.
#[test]
fn payloads_come_last() {
    let conn = database();
    let mut statement = conn.prepare("select name from pragma_table_info('event')").expect("one");
    let names = statement.query_map([], |row| row.get::<_, String>(0)).expect("columns");
    assert_eq!(names.last().expect("columns").expect("a name"), "payload");
    check(&conn, EVENT_LINE, &["e USING INTEGER PRIMARY KEY"]);
    check(&conn, EVENT_FROM_ID, &["INDEX event_by_id (tenant=? AND id>?)"]);
}

/// Each filter of the audit log, alone and within a tenant or a realm, is a range of an index in the right order.
#[test]
fn the_audit_log_is_read_by_its_indexes() {
    use posthorn_store::Order;

    let conn = database();
    check(&conn, PRUNE_AUDIT, &["SEARCH audit USING PRIMARY KEY (id<?)"]);
    check(&conn, AUDIT_OF_TENANT, &["INDEX audit_tenant (tenant=?)"]);
    for order in [Order::NewestFirst, Order::OldestFirst] {
        for scope in [None, Some("tenant"), Some("realm")] {
            for facet in [None, Some("object"), Some("actor"), Some("action"), Some("noun")] {
                let sql = crate::read::audit::statement(scope, facet, order);
                let columns: Vec<&str> = scope.into_iter().chain(facet).collect();
                let range = "id>? AND id<?)";
                let wanted = match columns.as_slice() {
                    [] => format!("USING PRIMARY KEY ({range}"),
                    [one] => format!("INDEX audit_{one} ({one}=? AND {range}"),
                    [one, two] => {
                        format!("INDEX audit_{one}_{two} ({one}=? AND {two}=? AND {range}")
                    }
                    _ => unreachable!("two at most"),
                };
                check(&conn, &sql, &[&wanted]);
            }
        }
    }
}

#[test]
fn sessions_of_pages_are_found_by_their_indexes() {
    use posthorn_store::Order;

    let conn = database();
    for sql in [SESSION_FIND, SESSION_END] {
        check(&conn, sql, &["page_session USING PRIMARY KEY (id=?)"]);
    }
    check(&conn, SESSIONS_OF_KEY, &["INDEX page_session_key (key=?)"]);
    check(&conn, SESSIONS_LABELLED, &["INDEX page_session_label (tenant=? AND label=?)"]);
    check(&conn, SESSIONS_OF_TENANT, &["INDEX page_session_tenant (tenant=?)"]);
    check(&conn, COUNT_SESSIONS, &["INDEX page_session_tenant (tenant=?)"]);
    for sql in [SESSION_OVER, PRUNE_SESSIONS] {
        check(&conn, sql, &["INDEX page_session_expiry (expires_at<?)"]);
    }
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let statement = |scope| crate::read::session::statement(scope, order);
        check(&conn, &statement(None), &["USING PRIMARY KEY (id>? AND id<?)"]);
        for scope in ["tenant", "realm"] {
            let wanted = format!("INDEX page_session_{scope} ({scope}=? AND id>? AND id<?)");
            check(&conn, &statement(Some(scope)), &[&wanted]);
        }
    }
}

#[test]
fn kept_answers_are_found_by_their_key_and_their_end() {
    let conn = database();
    for sql in [ANSWER_FIND, ANSWER_TAKE, ANSWER_KEEP, ANSWER_RELEASE] {
        check(&conn, sql, &["sqlite_autoindex_kept_answer_1 (key=?)"]);
    }
    check(&conn, ANSWER_CLEAR, &["INDEX kept_answer_held"]);
    for sql in [ANSWER_OVER, PRUNE_ANSWERS] {
        check(&conn, sql, &["INDEX kept_answer_expiry (expires_at<?)"]);
    }
}

#[test]
fn work_is_found_by_the_due_index() {
    let conn = database();
    check(
        &conn,
        PENDING,
        &["SEARCH d USING INDEX delivery_due (subscription=? AND due_at>? AND due_at<?)"],
    );
    check(
        &conn,
        DUE_SUBSCRIPTIONS,
        &[
            "SCAN delivery USING INDEX delivery_due",
            "SEARCH d USING INDEX delivery_due (subscription>?)",
            "SEARCH d USING INDEX delivery_due (subscription=?)",
        ],
    );
    check(&conn, SWEEP, &["USING INDEX delivery_due (subscription=?)"]);
}

/// What quotas and gauges look at every few seconds: a row for each tenant, and nothing of the history.
#[test]
fn counts_read_the_tally() {
    let conn = database();
    check(&conn, PENDING_BY_TENANT, &["SCAN w", "SEARCH t USING INTEGER PRIMARY KEY"]);
    check(&conn, COUNTS, &["SCAN tally"]);
    check(&conn, COUNTS_OF_TENANT, &["SEARCH tally USING INTEGER PRIMARY KEY"]);
    let unswept = "SEARCH d USING INDEX delivery_due (subscription=?)";
    check(&conn, UNSWEPT, &["SCAN s USING INDEX subscription_unswept", unswept]);
}

#[test]
fn figures_of_the_past_are_found_by_time_and_scope() {
    let conn = database();
    check(&conn, PENDING_BY_SUBSCRIPTION, &["SCAN delivery USING INDEX delivery_due"]);
    check(&conn, ROLLUP_MINUTE, &["USING PRIMARY KEY (at=? AND scope=?)"]);
    check(&conn, ROLLUP_HOUR, &["USING PRIMARY KEY (at=? AND scope=?)"]);
    for kind in [ROLLUP_KIND_MINUTE, ROLLUP_KIND_HOUR] {
        check(&conn, kind, &["USING PRIMARY KEY (at=? AND scope>? AND scope<?)"]);
    }
    for bounds in [ROLLUP_BOUNDS, ROLLUP_HOUR_BOUNDS] {
        let ends = [
            "SCAN CONSTANT ROW",
            "SCALAR SUBQUERY",
            "SEARCH rollup",
            "SCALAR SUBQUERY",
            "SEARCH rollup",
        ];
        check(&conn, bounds, &ends);
    }
    check(&conn, ROLLUP_DUE, &["USING PRIMARY KEY ((at,scope,node)>(?,?,?) AND at<?)"]);
    check(&conn, ROLLUP_PRUNE, &["USING PRIMARY KEY (at=? AND scope=? AND node=?)", "(at<?)"]);
    check(&conn, ROLLUP_HOUR_PRUNE, &["USING PRIMARY KEY (at=? AND scope=?)", "(at<?)"]);
}

#[test]
fn the_log_is_followed_by_primary_keys() {
    let conn = database();
    check(&conn, EVENTS_AFTER, &["USING INTEGER PRIMARY KEY (rowid>?)"]);
    let delivery = "SEARCH d USING INTEGER PRIMARY KEY";
    check(&conn, ATTEMPTS_AFTER, &["SEARCH a USING INTEGER PRIMARY KEY (rowid>?)", delivery]);
    check(&conn, ATTEMPT_MADE, &["SEARCH a USING INTEGER PRIMARY KEY (rowid=?)", delivery]);
    check(&conn, EVENT_LINE, &["e USING INTEGER PRIMARY KEY"]);
    check(&conn, EVENT_FROM, &["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"]);
    check(&conn, ATTEMPT_FROM, &["SEARCH attempt USING INTEGER PRIMARY KEY (rowid>?)"]);
    check(&conn, EVENTS_END, &["SEARCH event"]);
    check(&conn, ATTEMPTS_END, &["SEARCH attempt"]);
}

#[test]
fn lanes_are_found_by_the_lane_index() {
    let conn = database();
    check(&conn, FIRST_OF_LANE, &["USING INDEX delivery_lane (subscription=? AND lane=?)"]);
    for sql in [INSERT_IN_LANE, HEAD_OF_LANE, FIRST_PARKED] {
        check(&conn, sql, &["INDEX delivery_lane (subscription=? AND lane=?)"]);
    }
    check(&conn, MOVE, &["USING INTEGER PRIMARY KEY (rowid=?)"]);
    check(&conn, SWEEP_BLOCKERS, &["INDEX delivery_lane (subscription=?)"]);
}

#[test]
fn pages_are_ranges_of_an_index() {
    let conn = database();
    check(&conn, SEQS_OF_EVENT, &["USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    check(&conn, LATER_DELIVERY, &["INDEX later_delivery_to (event=? AND subscription=?)"]);
    check(&conn, DELIVERIES_OF_EVENT, &["USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    let two =
        ["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "INDEX later_delivery_to (event=?)"];
    check(&conn, STATES_OF_EVENT, &two);
    check(&conn, FAN_OUT, &["(tenant=? AND id=?)", "(event=?)"]);
    check(&conn, PRUNE_JOBS, &["INDEX job_ended (finished_at<?)"]);
    check(&conn, DEAD_SEQS, &["INDEX delivery_dead (tenant=? AND rowid>? AND rowid<?)"]);
    check(&conn, IN_FLIGHT_SEQS, &["INDEX delivery_in_flight (tenant=? AND rowid>? AND rowid<?)"]);
    check(&conn, EVENTS_WITH_DEAD, &["USING PRIMARY KEY (tenant=? AND event>? AND event<?)"]);
    check(&conn, ATTEMPTS_OF_EVENT, &["COVERING INDEX attempt_of (delivery>? AND delivery<?)"]);
    for sql in [EVENT_GLANCE, DELIVERY_GLANCE, ATTEMPT_GLANCE] {
        check(&conn, sql, &["USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    }
    for sql in [DELIVERY_BY_SEQ, ATTEMPT_LINE] {
        check(&conn, sql, &["USING INTEGER PRIMARY KEY (rowid=?)"]);
    }
}

/// A walk goes from block to block, and looks up what it needs of each.
#[test]
fn walks_look_up_each_block() {
    use crate::log::List;
    use crate::log::walk::{Terms, Way, driver};
    use posthorn_store::Order;

    let conn = database();
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let way = Way { list: List::Events, order, rows: (0, 9), times: (0, 9) };
        let all = Terms::All { owner: 1, kinds: vec![(2, vec![3, 4])] };
        let (sql, _) = driver(&way, &all, (0, 1));
        let blocks = "b USING PRIMARY KEY (list=? AND no>? AND no<?)";
        let by_value =
            "p USING PRIMARY KEY (list=? AND block=? AND owner=? AND kind=? AND value=?)";
        check(&conn, &sql, &[blocks, by_value]);
        let owner = Terms::Owner { owner: 1, wants: &|_, _| true, unless: 0 };
        let (sql, _) = driver(&way, &owner, (0, 1));
        check(&conn, &sql, &[blocks, "p USING PRIMARY KEY (list=? AND block=? AND owner=?)"]);
    }
    use crate::log::build;
    check(&conn, build::TIMES_OF_BLOCKS, &["USING PRIMARY KEY (list=? AND no>? AND no<?)"]);
    for sql in [build::EVENTS, build::DELIVERIES, build::ATTEMPTS, build::TIMES_OF_EVENTS] {
        check(&conn, sql, &["USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    }
}

#[test]
fn what_is_removed_is_found_by_keys() {
    let conn = database();
    check(&conn, UNFINISHED, &["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    check(&conn, UNFINISHED, &["SEARCH l USING", "(event=?)"]);
    check(&conn, EXPUNGE_EVENT, &["event USING INTEGER PRIMARY KEY (rowid=?)"]);
    check(&conn, EXPUNGE_RESPONSES, &["INDEX attempt_of (delivery>? AND delivery<?)"]);
    check(&conn, EXPUNGE_SENT, &["INDEX attempt_of (delivery>? AND delivery<?)"]);
    check(&conn, EXPUNGE_RESPONSE, &["INDEX attempt_of (delivery=? AND number=?)"]);
}

#[test]
fn maintenance_reads_ranges() {
    let conn = database();
    check(&conn, PRUNE_CANDIDATES, &["e USING INTEGER PRIMARY KEY (rowid>?)"]);
    check(&conn, PRUNE_CANDIDATES, &["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    check(&conn, EXPIRED, &["INDEX expiry_by_time (at<?)"]);
    check(&conn, EXPIRED_CHECK, &["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    check(&conn, SCHEDULED, &["w USING INDEX scheduled_by_time (at<?)"]);
    check(&conn, SCHEDULED, &["d USING INTEGER PRIMARY KEY (rowid=?)"]);
    check(&conn, PRUNE_REDRIVES, &["INDEX redrive_ended (finished_at<?)"]);
    check(&conn, PRUNE_RECALLS, &["INDEX recall_by_age (at<?)"]);
    check(&conn, RECALLS_SINCE, &["INDEX recall_by_version (version>?)"]);
    check(&conn, PRUNE_KEYS, &["INDEX idempotency_by_age (accepted_at<?)"]);
    for sql in [REDRIVABLE, COUNT_REDRIVABLE] {
        check(&conn, sql, &["USING INDEX delivery_dead (tenant=? AND rowid>?)"]);
    }
}
