//! Stores that are read and written for a copy.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use posthorn_conformance::Fixture;
use posthorn_conformance::builders::{Setting, at, delivery, event, whole};
use posthorn_domain::{Event, SubscriptionId};
use posthorn_store::copy::{ATTEMPT, DELIVERY, Reading, Report, SHEETS, Unit, Value, bring};
use posthorn_store::{NewDelivery, NewEvent, Store};
use posthorn_store_sqlite::{
    CopyError, CopySource, CopyTarget, Depth, OpenError, Options, SqliteStore, check_file, repair,
};
use rusqlite::Connection;

/// A store in a directory of its own.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn conn(&self) -> Connection {
        Connection::open(self.path().join("posthorn.db")).expect("a connection")
    }

    /// Changes rows as nobody should.
    fn sql(&self, text: &str) {
        let conn = self.conn();
        conn.execute_batch("pragma foreign_keys = off").expect("configured");
        conn.execute_batch(text).expect(text);
    }

    fn numbers(&self, sql: &str) -> Vec<Option<i64>> {
        let conn = self.conn();
        let mut statement = conn.prepare(sql).expect(sql);
        let rows = statement.query_map([], |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("numbers")
    }

    async fn units(&self, sheet: &str) -> Vec<Unit> {
        let sheet = SHEETS.iter().find(|known| known.name == sheet).expect("a sheet");
        let mut reading = CopySource::open(self.path()).expect("a store").reading().expect("begun");
        reading.open(sheet).await.expect("opened");
        let mut all = Vec::new();
        loop {
            let units = reading.next().await.expect("a bite");
            if units.is_empty() {
                return all;
            }
            all.extend(units);
        }
    }

    /// A copy into another directory.
    async fn copy_to(&self, other: &Self) -> Report {
        let source = CopySource::open(self.path()).expect("a store");
        let mut target = CopyTarget::open(other.path(), "the first").expect("a target");
        let mut reading = source.reading().expect("begun");
        let report = bring(&mut reading, &mut target, &mut |_| ()).await.expect("copied");
        assert_eq!(report.differences(), Vec::<&str>::new());
        report
    }
}

#[async_trait]
impl Fixture for Folder {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(&Options::new(self.path())).expect("the store opens"))
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        drop(store);
        self.store().await
    }
}

/// Publishes something for later, in the one lane of a subscription.
async fn publish_later(setting: &Setting, to: SubscriptionId) {
    let due = NewDelivery { due_at: at(5_000), ..delivery(to, whole()) };
    let planned = setting.planned(vec![due]).await;
    let event = Event { deliver_at: Some(at(5_000)), ..event(setting.tenant) };
    setting.accept(NewEvent { event: Arc::new(event), ..planned }).await;
}

#[tokio::test]
async fn what_was_held_and_ended_is_held_no_more() {
    let folder = Folder::new();
    let setting = Setting::new(&folder).await;
    let subscription = setting.subscribe().await;
    setting.publish_in(subscription, whole()).await;
    publish_later(&setting, subscription).await;
    setting.store.enter_lanes(100, at(6_000)).await.expect("entered");
    let held = "select held_until from delivery order by seq";
    assert_eq!(
        folder.numbers(held),
        [None, Some(at(5_000).as_millis())],
        "it waits behind the first"
    );
    setting.unsubscribe(subscription, at(7_000)).await;
    setting.store.sweep_cancelled(100, at(8_000)).await.expect("swept");
    assert_eq!(folder.numbers(held), [None, None]);
    drop(setting);
    // Former programs left it there.
    folder.sql("update delivery set held_until = 5000");
    let ended = folder.units("event").await;
    let place = |name| DELIVERY.columns.iter().position(|column| column.name == name);
    let (state, held) = (place("state").expect("a column"), place("held_until").expect("a column"));
    for delivery in ended.iter().flat_map(|unit| &unit.deliveries) {
        assert!(delivery[state].int() > Some(1));
        assert_eq!(delivery[held], Value::Null);
    }
}

/// Deliveries that entered their lane later have an old id and a new number.
const ENTERED: &str = "update delivery set seq = 1000 where seq = 3; \
    insert into later_delivery select event, seq, subscription from delivery where seq = 1000";

/// A job that runs, and how far it is.
fn job(number: u8, work: &str, cursor: &str) -> String {
    format!(
        "insert into job (id, tenant, work, per_second, state, seen, done, cursor, created_by, created_at) \
         values (x'018f00000000700080000000000000{number:02x}', 1, '{work}', 1, 0, 0, 0, {cursor}, '', 0);"
    )
}

#[tokio::test]
async fn places_of_jobs_and_redrives_pass_over_nothing_on_the_other_side() {
    let (first, second) = (Folder::new(), Folder::new());
    let setting = Setting::new(&first).await;
    let (one, two) = (setting.subscribe().await, setting.subscribe().await);
    for _ in 0..10 {
        setting.publish(&[(one, None), (two, None)]).await;
    }
    drop(setting);
    let to = r#""subscription":"sub_0""#;
    let events = r#""kind":"replay","events":{}"#;
    let works = [
        // Those that walk over deliveries.
        (format!(r#"{{{events},"status":"all"}}"#), "9"),
        (format!(r#"{{{events},{to},"status":"failed"}}"#), "9"),
        (format!(r#"{{{events},{to},"status":"delivered"}}"#), "20"),
        (r#"{"kind":"retry","deliveries":{}}"#.to_owned(), "20"),
        (r#"{"kind":"cancel","deliveries":{}}"#.to_owned(), "null"),
        // Those that walk over events.
        (format!(r#"{{{events},{to},"status":"missed"}}"#), "7"),
        (format!(r#"{{{events},{to},"status":"all"}}"#), "10"),
        (r#"{"kind":"expunge","events":{},"responses":true}"#.to_owned(), "4"),
        // Done already.
        (r#"{"kind":"deliver"}"#.to_owned(), "0"),
    ];
    for (number, (work, cursor)) in (0..).zip(&works) {
        first.sql(&job(number, work, cursor));
    }
    first.sql(
        "insert into redrive (id, tenant, filter, per_second, state, total, moved, cursor, created_at) \
         values (x'018f0000000070008000000000000001', 1, '{}', 1, 0, 9, 3, 6, 0)",
    );
    let places = "select cursor from job order by id";
    let before = first.numbers(places);
    first.copy_to(&second).await;
    assert_eq!(second.numbers(places), before, "rows in one order are at one place");
    assert_eq!(second.numbers("select cursor from redrive"), [Some(6)]);

    // The third delivery has entered its lane meanwhile: in the order of ids it is before all places now, so that all begin there.
    first.sql(ENTERED);
    first.sql("update job set cursor = 1000 where id = x'018f0000000070008000000000000002'");
    let deliveries = first.units("job").await;
    let ids: Vec<Value> = first
        .units("event")
        .await
        .iter()
        .flat_map(|unit| &unit.deliveries)
        .filter(|row| row[4] == Value::Int(2) || row[4] == Value::Int(1000))
        .map(|row| row[0].clone())
        .collect();
    let (before_it, it) = (&ids[0], &ids[1]);
    let place = |number: usize| &deliveries[number].row[11];
    for number in [0, 1, 3] {
        assert!(place(number) < it && place(number) >= before_it, "{number}");
    }
    assert!(place(2) > it, "all was looked at");
    assert_eq!((place(4), place(8)), (&Value::Null, &Value::Bytes(vec![0; 16].into())));
    assert!(first.units("redrive").await[0].row[9] < *it);
    // From there nothing is passed over by number either, although some is looked at once more.
    let third = Folder::new();
    first.copy_to(&third).await;
    let there = third.numbers(places);
    assert_eq!(there[..4], [Some(3), Some(3), Some(1000), Some(3)]);
    assert_eq!(there[4..], before[4..]);
    assert_eq!(third.numbers("select cursor from redrive"), [Some(3)]);
    // A copy that is brought up to date has what has become of the places since, too.
    first.copy_to(&second).await;
    assert_eq!(second.numbers(places)[..4], [Some(9), Some(9), Some(1000), Some(20)]);
}

#[tokio::test]
async fn what_belongs_to_nothing_is_left_out_and_counted() {
    let (first, second) = (Folder::new(), Folder::new());
    let setting = Setting::new(&first).await;
    let subscription = setting.subscribe().await;
    for _ in 0..3 {
        setting.publish_one(subscription).await;
    }
    let other = setting.subscribe().await;
    setting.publish(&[(subscription, None), (other, None)]).await;
    drop(setting);
    assert_eq!(first.copy_to(&Folder::new()).await.left_out, 0);
    first.sql(
        "update event set tenant = 99 where no = 1; \
         update delivery set subscription = 9999 where seq = 4; \
         insert into attempt (delivery, subscription, number, started_at, took, late, manual) \
         values (4, 9999, 1, 0, 0, 0, 0); \
         insert into push_channel (agent, id, created_at) values (9, zeroblob(16), 0); \
         insert into idempotency (tenant, key, fingerprint, event, accepted_at) \
         values (99, 'k', x'', zeroblob(16), 0)",
    );
    // An event with its delivery, a delivery with its attempt, and two more.
    assert_eq!(first.copy_to(&second).await.left_out, 2 + 2 + 2);
    assert_eq!(second.numbers("select count(*) from event"), [Some(3)]);
}

#[tokio::test]
async fn what_is_not_whole_or_of_another_schema_is_not_repaired() {
    let folder = Folder::new();
    drop(folder.store().await);
    folder.sql(
        "create table unfinished_copy (source text not null) strict; \
                insert into unfinished_copy values ('another')",
    );
    let refused = repair(folder.path()).expect_err("a half copy");
    assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    let newest = "(select max(version) from migration)";
    folder.sql(&format!(
        "drop table unfinished_copy; delete from migration where version = {newest}"
    ));
    let refused = repair(folder.path()).expect_err("an older schema");
    assert!(matches!(refused, OpenError::OlderSchema { .. }), "{refused}");
    let versions = folder.numbers("select max(version) from migration");
    let known = i64::try_from(posthorn_store_sqlite::SCHEMA_VERSION).expect("small");
    assert_eq!(versions, [Some(known - 1)], "nothing was brought up to date on the side");
}

#[test]
fn a_store_whose_first_start_was_killed_is_in_nobodys_way() {
    // Before the database has its log, a kill leaves a journal that says what to undo.
    let begun = Folder::new();
    let conn = begun.conn();
    conn.execute_batch(
        "pragma cache_size = 1; begin; create table begun (payload blob); \
         insert into begun values (zeroblob(1000000))",
    )
    .expect("begun");
    let killed = || {
        let folder = Folder::new();
        for name in ["posthorn.db", "posthorn.db-journal"] {
            let length = std::fs::copy(begun.path().join(name), folder.path().join(name));
            assert!(length.expect(name) > 0, "{name}");
        }
        folder
    };
    CopyTarget::open(killed().path(), "the first").expect("a target");
    let empty = CopySource::open(killed().path()).err().expect("nothing to copy");
    assert!(matches!(empty, CopyError::OlderSchema { found: 0, .. }), "{empty}");
    let damage = check_file(killed().path(), Depth::Quick).expect("checked");
    assert_eq!(damage.findings, [""; 0]);
}

/// What is in no sheet under its own name: columns, or a whole table where none are named.
const ELSEWHERE: &[(&str, &[&str])] = &[
    // Of the program, and of SQLite.
    ("migration", &[]),
    ("sqlite_sequence", &[]),
    // Numbers, which are given out anew, and what belongs together by them.
    ("tenant", &["no"]),
    ("subscription", &["no"]),
    ("event", &["no", "first_seq", "deliveries"]),
    ("push_agent", &["no"]),
    ("later_delivery", &[]),
    ("attempt", &["subscription"]),
    // In a sheet under another name.
    ("subscription", &["swept"]),
    ("event", &["event_type"]),
    ("delivery", &["holds_lane"]),
    ("expiry", &[]),
    ("scheduled", &[]),
    ("store", &["seq_floor", "attempt_floor"]),
    ("folded_rollup", &[]),
    ("shard", &[]),
    // Counted and indexed anew.
    ("store", &["event_floor"]),
    ("tally", &[]),
    ("dead_event", &[]),
    ("block", &[]),
    ("posting", &[]),
    // Of nodes that work with the store.
    ("recall", &[]),
    ("kept_answer", &["holder", "until"]),
];

#[tokio::test]
async fn every_column_is_copied_or_known_not_to_be() {
    let folder = Folder::new();
    drop(folder.store().await);
    let conn = folder.conn();
    let sql = "select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c \
               where t.type = 'table' order by 1, c.cid";
    let mut statement = conn.prepare(sql).expect("a statement");
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("columns");
    let columns: Vec<(String, String)> = columns.collect::<Result<_, _>>().expect("columns");
    let sheets = SHEETS.iter().copied().chain([&DELIVERY, &ATTEMPT]);
    let copied: Vec<(&str, &str)> = sheets
        .flat_map(|sheet| sheet.columns.iter().map(|column| (sheet.name, column.name)))
        .collect();
    let listed = |table: &str, column: &str| {
        let of = |(name, columns): &&(&str, &[&str])| {
            *name == table && (columns.is_empty() || columns.contains(&column))
        };
        ELSEWHERE.iter().any(|known| of(&known))
    };
    let unknown: Vec<String> = columns
        .iter()
        .filter(|(table, column)| {
            let is_copied = copied.contains(&(table, column));
            assert!(!(is_copied && listed(table, column)), "{table}.{column} is copied");
            !is_copied && !listed(table, column)
        })
        .map(|(table, column)| format!("{table}.{column}"))
        .collect();
    assert_eq!(
        unknown,
        Vec::<String>::new(),
        "add them to the sheets of a copy (ADR 50), or to the list of what is made anew"
    );
    let is_there = |table: &str, column: Option<&&str>| {
        columns.iter().any(|(t, c)| t == table && column.is_none_or(|column| c == column))
    };
    for (table, listed) in ELSEWHERE {
        assert!(is_there(table, None), "{table}");
        assert!(listed.iter().all(|column| is_there(table, Some(column))), "{table}");
    }
}
