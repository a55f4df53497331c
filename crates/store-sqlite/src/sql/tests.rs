//! SQLite still chooses the plans the statements rely on.

use rusqlite::Connection;

use super::*;

pub(crate) fn database() -> Connection {
    let mut conn = Connection::open_in_memory().expect("a database");
    crate::migrate::migrate(&mut conn).expect("the schema");
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
    check(&conn, ATTEMPTS, &["USING PRIMARY KEY (delivery=?)"]);
}

#[test]
fn entries_are_found_by_their_indexes() {
    let conn = database();
    check(&conn, ENTRY_BY_KEY, &["INDEX sqlite_autoindex_entry_1 (kind=? AND key=?)"]);
    check(&conn, ENTRY_BY_UNIQUE, &["INDEX entry_unique (kind=? AND unique_key=?)"]);
    check(&conn, OPERATOR_KEYS, &["INDEX entry_of_operators"]);
    check(&conn, ENTRIES_SINCE, &["INDEX entry_by_version (version>?)"]);
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
    // What quotas look at every few seconds.
    check(
        &conn,
        PENDING_BY_SUBSCRIPTION,
        &[
            "SCAN delivery USING INDEX delivery_due",
            "SEARCH s USING INTEGER PRIMARY KEY",
            "SEARCH t USING INTEGER PRIMARY KEY",
        ],
    );
}

/// The index has all that is counted: the table is opened, but no column of it is ever read, so that
/// its rows are never looked up.
#[test]
fn counting_unfinished_work_reads_no_row() {
    let conn = database();
    let mut statement =
        conn.prepare(&format!("explain {PENDING_BY_SUBSCRIPTION}")).expect("a program");
    let mut rows = statement.raw_query();
    let (mut table, mut read) = (None, Vec::new());
    while let Some(row) = rows.next().expect("a step") {
        let (operation, p1, p3): (String, i64, i64) =
            (row.get(1).expect("text"), row.get(2).expect("p1"), row.get(4).expect("p3"));
        match operation.as_str() {
            "DeferredSeek" => table = Some(p3),
            "Column" => read.push(p1),
            _ => {}
        }
    }
    let table = table.expect("the scan is by an index that only may look up rows");
    assert!(!read.contains(&table), "columns of {read:?} are read, {table} is the table");
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
    check(&conn, DELIVERIES, &["USING INDEX delivery_by_id (id<?)"]);
    check(&conn, DELIVERIES_OF_SUBSCRIPTION, &["USING INDEX delivery_by_id (id<?)"]);
    check(&conn, DEAD_DELIVERIES, &["USING INDEX delivery_dead_by_id (tenant=? AND id<?)"]);
    check(&conn, EVENTS, &["USING INDEX event_by_id (tenant=? AND id<?)"]);
}

#[test]
fn maintenance_reads_ranges() {
    let conn = database();
    check(&conn, PRUNE_CANDIDATES, &["e USING INTEGER PRIMARY KEY (rowid>?)"]);
    check(&conn, PRUNE_CANDIDATES, &["d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]);
    check(&conn, PRUNE_REDRIVES, &["INDEX redrive_ended (finished_at<?)"]);
    check(&conn, PRUNE_RECALLS, &["INDEX recall_by_age (at<?)"]);
    check(&conn, RECALLS_SINCE, &["INDEX recall_by_version (version>?)"]);
    check(&conn, PRUNE_KEYS, &["INDEX idempotency_by_age (accepted_at<?)"]);
    for sql in [REDRIVABLE, COUNT_REDRIVABLE] {
        check(&conn, sql, &["USING INDEX delivery_dead (tenant=? AND rowid>?)"]);
    }
}
