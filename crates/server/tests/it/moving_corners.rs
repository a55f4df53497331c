//! Stores that move although something in them is out of the ordinary.

use std::fs::File;
use std::path::Path;

use posthorn_testkit::clock::since_1970;
use posthorn_testkit::postgres;
use posthorn_testkit::program::Home;
use rusqlite::Connection;

use super::moving::{copied, schema, sql};

const DAY_MILLIS: u128 = 86_400_000;

/// A store with events for two subscriptions that are paused, at rest.
fn store(events: usize) -> Home {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    for name in ["one", "two"] {
        server.ask(&["subscriptions", "create", "http://127.0.0.1:9/", "--name", name, "--paused"]);
    }
    server.ask(&format!("send orders order.created --count {events}"));
    server.stop();
    home
}

/// Changes rows as nobody should.
fn edit(directory: &Path, text: &str) {
    let conn = Connection::open(directory.join("posthorn.db")).expect("a connection");
    conn.execute_batch("pragma foreign_keys = off").expect("configured");
    conn.execute_batch(text).expect(text);
}

#[test]
fn a_store_whose_ended_deliveries_were_once_held_moves() {
    let home = store(2);
    edit(
        &home.data(),
        "update delivery set state = 20, ended_at = 7, due_at = 9223372036854775807, held_until = 5 where seq = 1",
    );
    let (to, from) = schema("corner_held");
    assert_eq!(copied(&home, &format!("--from config {to}"))["complete"], true);
    assert_eq!(copied(&home, &format!("{from} --to sqlite:back"))["complete"], true);
}

#[test]
fn jobs_go_on_where_they_were_and_what_belongs_to_nothing_is_left_out() {
    let home = store(10);
    let (to, from) = schema("corner_jobs");
    copied(&home, &format!("--from config {to}"));
    let tenant = "'00000000-0000-0000-0000-000000000000'";
    let delivery =
        |seq: u32| format!("(select id from corner_jobs.delivery_live where seq = {seq})");
    let event = "(select id from corner_jobs.event order by id offset 6 limit 1)".to_owned();
    let nobody = "'018f0000-0000-7000-8000-000000000099'";
    let works = [
        (r#"{"kind":"replay","events":{},"status":"all"}"#, delivery(9)),
        (r#"{"kind":"replay","subscription":"sub_0","events":{},"status":"failed"}"#, delivery(9)),
        (r#"{"kind":"retry","deliveries":{}}"#, delivery(20)),
        (r#"{"kind":"replay","subscription":"sub_0","events":{},"status":"missed"}"#, event),
        (r#"{"kind":"expunge","events":{},"responses":true}"#, "null".to_owned()),
        (r#"{"kind":"deliver"}"#, "'00000000-0000-0000-0000-000000000000'".to_owned()),
    ];
    for (number, (work, cursor)) in works.iter().enumerate() {
        sql(&format!(
            "insert into corner_jobs.job (id, tenant, work, per_second, state, seen, done, cursor, created_by, created_at) \
             values ('018f0000-0000-7000-8000-00000000000{number}', {tenant}, '{work}', 1, 0, 0, 0, {cursor}, '', 0)"
        ));
    }
    sql(&format!(
        "insert into corner_jobs.redrive (id, tenant, filter, per_second, state, total, moved, created_at, cursor) \
         values ('018f0000-0000-7000-8000-000000000001', {tenant}, '{{}}', 1, 0, 5, 3, 0, {})",
        delivery(6)
    ));
    sql(&format!("insert into corner_jobs.push_channel values ({nobody}, {nobody}, null, 1)"));
    sql(&format!("insert into corner_jobs.idempotency values ({nobody}, 'k', '', {nobody}, 1)"));
    let back = copied(&home, &format!("{from} --to sqlite:back"));
    assert_eq!((&back["complete"], &back["left_out"]), (&true.into(), &2.into()));
    let said = home.run(&format!("store copy {from} --to sqlite:again")).exits(0);
    said.says(&["2 rows of the source were left out"]);

    let numbers = |text: &str| {
        let conn = Connection::open(home.path().join("back/posthorn.db")).expect("a connection");
        let mut statement = conn.prepare(text).expect(text);
        let rows = statement.query_map([], |row| row.get::<_, Option<i64>>(0)).expect("rows");
        rows.collect::<Result<Vec<_>, _>>().expect("numbers")
    };
    let places = numbers("select cursor from job order by id");
    assert_eq!(places, [Some(9), Some(9), Some(20), Some(7), None, Some(0)]);
    assert_eq!(numbers("select cursor from redrive"), [Some(6)]);
    std::fs::copy(home.data().join("seal.key"), home.path().join("back/seal.key")).expect("copied");
    let (to, _) = schema("corner_jobs_again");
    assert_eq!(copied(&home, &format!("--from sqlite:back {to}"))["complete"], true);
    for table in ["job", "redrive"] {
        let all = |schema: &str| {
            let text = format!("select id, cursor from {schema}.{table} order by id");
            postgres::shared().sql(&text).expect("rows")
        };
        assert_eq!(all("corner_jobs"), all("corner_jobs_again"), "the same places again");
    }
}

#[test]
fn a_second_run_does_not_wait_for_its_own_reading_where_days_are_missing() {
    let home = store(2);
    let now = since_1970().as_millis();
    let id = |days: u128, n: u8| {
        let at = now - days * DAY_MILLIS;
        format!("x'{at:012x}70008000{n:012x}'")
    };
    edit(
        &home.data(),
        &format!(
            "update event set id = {0} where no = 1; update delivery set id = {0} where seq = 1; \
             update delivery set id = {1} where seq = 2",
            id(19, 1),
            id(19, 2)
        ),
    );
    let (to, _) = schema("corner_days");
    {
        // As a server that works with it.
        let lock =
            File::options().write(true).open(home.data().join("posthorn.lock")).expect("there");
        lock.lock().expect("locked");
        assert_eq!(copied(&home, &format!("--from config {to}"))["complete"], false);
    }
    // Later, jobs have made deliveries of the old event: on a day in between, and on one (by a strange id) before all others. It
    // is so large that it is written at once.
    let made = |seq: u8, id: String| {
        format!(
            "insert into delivery (seq, id, event, tenant, subscription, state, due_at, attempts, budget_base) \
             select {seq}, {id}, event, tenant, subscription, 0, 9223372036854775806, 0, 0 from delivery where seq = 1; \
             insert into later_delivery (event, seq, subscription) values (1, {seq}, {seq});"
        )
    };
    let text = [made(100, id(12, 3)), made(101, id(30, 4))].concat();
    edit(
        &home.data(),
        &format!("{text} update event set payload = zeroblob(9000000) where no = 1"),
    );
    assert_eq!(copied(&home, &format!("--from config {to}"))["complete"], true);
    let days = "select count(*) from pg_class where relnamespace = 'corner_days'::regnamespace \
                and relname ~ '^event_d[0-9]{8}$'";
    let days = postgres::shared().sql(days).expect("a count");
    assert_eq!(days.trim(), "23", "each from the oldest on, and three ahead");
}
