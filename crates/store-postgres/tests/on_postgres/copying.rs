//! Stores that a copy is made in, and what of a store is copied.

use std::time::Duration;

use posthorn_conformance::builders::at;
use posthorn_store::copy::{ATTEMPT, DELIVERY, SHEETS};
use posthorn_store::{Error, Store};
use posthorn_store_postgres::{
    CopyError, CopySource, CopyTarget, Options, PostgresStore, inconsistencies, repair,
};
use posthorn_testkit::postgres::shared;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::fixture::{connect, database, options, raw, until_somebody_waits};

/// The lock around migrations and partitions.
const SCHEMA_LOCK: i64 = 7_201_000_000_001;
const SOURCE: &str = "the first";

async fn is_there(client: &Client, table: &str) -> bool {
    let text = format!("select to_regclass('{table}') is not null");
    client.query_one(&text, &[]).await.expect("an answer").get(0)
}

/// Begins a copy, and stops it when it wants to migrate.
async fn begun(url: &str) -> (Client, tokio::task::JoinHandle<Result<CopyTarget, CopyError>>) {
    let client = raw(url).await;
    client.execute("select pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await.expect("locked");
    let options = Options { schema: Some("public".to_owned()), ..options(url) };
    let opening = tokio::spawn(async move { CopyTarget::open(&options, SOURCE, None).await });
    until_somebody_waits(&client).await;
    (client, opening)
}

async fn unlock(client: &Client) {
    client.execute("select pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await.expect("unlocked");
}

#[tokio::test]
async fn a_copy_is_marked_before_it_has_tables() {
    let url = shared().create_database("copying_marked").expect("a database");
    let (client, opening) = begun(&url).await;
    assert!(is_there(&client, "unfinished_copy").await);
    assert!(!is_there(&client, "migration").await && !is_there(&client, "event").await);
    // As one that was killed here.
    opening.abort();
    assert!(opening.await.is_err(), "stopped");
    unlock(&client).await;
    let refused = PostgresStore::connect(options(&url)).await.map(drop).expect_err("a half copy");
    assert!(matches!(refused, Error::Fatal { .. }), "{refused:?}");
    // The connections of the one that was killed are closed a moment later.
    let again = Options { schema: Some("public".to_owned()), ..options(&url) };
    let target = loop {
        match CopyTarget::open(&again, SOURCE, None).await {
            Ok(target) => break target,
            Err(CopyError::InUse) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let index = "select head_index like 'CREATE UNIQUE INDEX%' from unfinished_copy";
    assert!(client.query_one(index, &[]).await.expect("a row").get::<_, bool>(0));
    assert!(!is_there(&client, "delivery_live_head").await);
    drop(target);
}

#[tokio::test]
async fn a_store_that_a_server_takes_at_the_last_moment_stays_its_own() {
    let url = database().await;
    let (client, opening) = begun(&url).await;
    let node = "insert into node (id, expires_at, catalog) \
                values (gen_random_uuid(), clock_timestamp() + interval '1 hour', 1)";
    client.batch_execute(node).await.expect("a node");
    unlock(&client).await;
    let refused = opening.await.expect("no panic").map(drop).expect_err("a server has it");
    assert!(matches!(refused, CopyError::InUse), "{refused:?}");
    assert!(!is_there(&client, "unfinished_copy").await, "it is as it was");
    assert!(is_there(&client, "delivery_live_head").await);
    drop(connect(&url).await);
}

#[tokio::test]
async fn a_server_that_says_nothing_but_is_still_connected_is_at_work() {
    let url = database().await;
    // It has given no sign of life, like one that was silent for longer than a lease.
    let store = connect(&url).await;
    store.ping().await.expect("an answer");
    let source = CopySource::open(&options(&url)).await.expect("a source");
    assert!(!source.is_at_rest().await.expect("an answer"));
    let refused = CopyTarget::open(&options(&url), SOURCE, None).await.map(drop);
    assert!(matches!(refused, Err(CopyError::InUse)), "{refused:?}");
    drop(store);
    // Who copies from it as well is no server.
    assert!(source.is_at_rest().await.expect("an answer"));
    drop(CopyTarget::open(&options(&url), SOURCE, None).await.expect("a target"));
}

#[tokio::test]
async fn one_connection_in_the_configuration_is_enough_for_a_copy() {
    let options = Options { connections: 1, ..options(&database().await) };
    drop(CopyTarget::open(&options, SOURCE, None).await.expect("a target"));
}

#[tokio::test]
async fn a_server_starts_while_somebody_reads_for_long_and_a_day_is_missing() {
    let url = database().await;
    drop(connect(&url).await);
    let (reader, client) = (raw(&url).await, raw(&url).await);
    let text = "select 'event_d' || to_char((clock_timestamp() at time zone 'utc') + interval '3 days', 'YYYYMMDD')";
    let day: String = client.query_one(text, &[]).await.expect("a name").get(0);
    client.batch_execute(&format!("drop table {day}")).await.expect("dropped");
    reader.batch_execute("begin; select count(*) from event").await.expect("a reader");
    let store = timeout(Duration::from_secs(20), PostgresStore::connect(options(&url))).await;
    drop(store.expect("soon").expect("a connection"));
    assert!(!is_there(&client, &day).await);
    reader.batch_execute("commit").await.expect("ended");
    let others = "drop table if exists delivery_done_d$, attempt_d$";
    let others = others.replace('$', day.trim_start_matches("event_d"));
    client.batch_execute(&others).await.expect("dropped");
    drop(connect(&url).await);
    assert!(is_there(&client, &day).await, "made by the next who could");
}

#[tokio::test]
async fn days_between_those_of_a_former_run_and_today_are_made_at_once() {
    let url = database().await;
    let client = raw(&url).await;
    let ago = |days: i32| {
        let text = "select (extract(epoch from clock_timestamp()) * 1000)::int8 - $1::int4 * 86400000::int8, \
                    to_char(clock_timestamp() at time zone 'utc' - make_interval(days => $1::int4), 'YYYYMMDD')";
        let client = &client;
        async move {
            let row = client.query_one(text, &[&days]).await.expect("a time");
            (row.get::<_, i64>(0), format!("event_d{}", row.get::<_, String>(1)))
        }
    };
    let (oldest, _) = ago(19).await;
    let store = connect(&url).await;
    let since = at(0).as_millis();
    store.make_days(at(oldest - since), 1).await.expect("the day of a former run");
    drop(store);
    let (_, between) = ago(12).await;
    assert!(!is_there(&client, &between).await);
    drop(CopyTarget::open(&options(&url), SOURCE, None).await.expect("a target"));
    for days in 0..19 {
        let (_, table) = ago(days).await;
        assert!(is_there(&client, &table).await, "{table}");
    }
}

#[tokio::test]
async fn partitions_are_not_waited_for_for_long() {
    let url = database().await;
    let store = connect(&url).await;
    let (reader, client) = (raw(&url).await, raw(&url).await);
    reader.batch_execute("begin; select count(*) from event").await.expect("a reader");
    let made = timeout(Duration::from_secs(10), store.make_days(at(0), 1)).await;
    let refused = made.expect("it gives up").expect_err("the tables are in use");
    assert!(refused.is_transient(), "{refused}");
    // Nobody waits behind it any more.
    client.batch_execute("select count(*) from event").await.expect("a count");
    reader.batch_execute("commit").await.expect("ended");
    store.make_days(at(0), 1).await.expect("made");
}

#[tokio::test]
async fn what_is_not_whole_or_of_another_schema_or_being_copied_is_not_repaired() {
    let url = database().await;
    let client = raw(&url).await;
    let refusal = || async {
        let error = repair(&options(&url)).await.expect_err("a refusal");
        std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(": ")
    };
    client
        .batch_execute("create table unfinished_copy as select 'another' as source")
        .await
        .expect("made");
    assert!(refusal().await.contains("a copy of another that is not complete"));
    client.batch_execute("drop table unfinished_copy").await.expect("dropped");

    let target = CopyTarget::open(&options(&url), SOURCE, None).await.expect("a target");
    assert!(refusal().await.contains("a copy is being made"));
    drop(target);
    client.batch_execute("drop table unfinished_copy").await.expect("dropped");

    let older = "delete from migration where version = (select max(version) from migration)";
    client.batch_execute(older).await.expect("deleted");
    while !refusal().await.contains("start this version on it first") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_lane_that_waits_behind_a_block_of_nothing_goes_on_after_a_repair() {
    let url = database().await;
    let client = raw(&url).await;
    let id = |n: u8| format!("'018f0000-0000-7000-8000-0000000000{n:02}'");
    let none = "'00000000-0000-0000-0000-000000000000'";
    let parked = i64::MAX;
    let live = |delivery: u8, subscription: u8, seq: u8| {
        format!(
            "insert into delivery_live (id, event, subscription, tenant, seq, due_at, budget_began, created_at, \
             attempts, budget_base, shard, state, lane_slot, lane) \
             values ({}, {}, {}, {none}, {seq}, {parked}, 0, 0, 0, 0, 0, 0, 0, 'a');",
            id(delivery),
            id(1),
            id(subscription)
        )
    };
    let text = [
        format!(
            "insert into subscription (id, tenant) values ({}, {none}), ({}, {none});",
            id(2),
            id(3)
        ),
        format!(
            "insert into event (id, tenant, topic, type, attributes, content_type, payload, accepted_at, deliveries) \
             values ({}, {none}, 't', 't', '{{}}', '', '', 0, array[{}, {}, {}]::uuid[]);",
            id(1),
            id(4),
            id(5),
            id(6)
        ),
        live(4, 2, 1),
        live(5, 2, 2),
        format!(
            "insert into lane_block (subscription, lane, delivery) values ({}, 'a', {});",
            id(2),
            id(9)
        ),
        // Of a subscription that was deleted and is being swept: nothing is wrong with it.
        live(6, 3, 3),
        format!("insert into subscription_gone (id, shard, deleted_at) values ({}, 0, 1);", id(3)),
    ];
    client.batch_execute(&text.concat()).await.expect("written");
    let found = repair(&options(&url)).await.expect("repaired");
    let found: Vec<(&str, u64)> = found.iter().map(|found| (found.what, found.rows)).collect();
    let expected = [
        ("blocks of lanes without their delivery", 1),
        ("tenants whose counts of events and deliveries are wrong", 1),
        ("lanes that wait without a head", 1),
    ];
    assert_eq!(found, expected);
    assert_eq!(inconsistencies(&options(&url)).await.expect("looked"), []);
    let rows =
        client.query("select due_at from delivery_live order by seq", &[]).await.expect("rows");
    let due: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(due, [0, parked, parked], "the first goes on");
}

/// What is in no sheet under its own name: columns, or a whole table where none are named.
const ELSEWHERE: &[(&str, &[&str])] = &[
    // Of the program.
    ("migration", &[]),
    // In a sheet under another name.
    ("catalog", &[]),
    ("event", &["deliveries"]),
    ("expiry", &[]),
    ("scheduled", &[]),
    ("lane_block", &[]),
    ("subscription_gone", &[]),
    ("folded_rollup", &[]),
    ("pruned", &[]),
    ("shard_lease", &[]),
    // Made of what is in the sheets, counted anew, or of the transactions of the copy.
    ("tenant", &["version"]),
    ("event", &["kind", "tx"]),
    ("delivery_live", &["created_at", "shard", "lane_slot"]),
    ("delivery_done", &["created_at"]),
    ("attempt", &["tenant", "subscription", "tx"]),
    ("failing", &["shard"]),
    ("skew", &[]),
    ("replayed", &[]),
    ("tally", &[]),
    ("tally_check", &[]),
    // Of nodes that work with the store.
    ("node", &[]),
    ("recall", &[]),
    ("kept_answer", &["holder", "until"]),
];

#[tokio::test]
async fn every_column_is_copied_or_known_not_to_be() {
    let client = raw(&database().await).await;
    let text = "select c.relname::text, a.attname::text from pg_class c join pg_attribute a on a.attrelid = c.oid \
                where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') \
                and not c.relispartition and a.attnum > 0 and not a.attisdropped order by 1, a.attnum";
    let rows = client.query(text, &[]).await.expect("columns");
    let columns: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let sheets = SHEETS.iter().copied().chain([&DELIVERY, &ATTEMPT]);
    let copied: Vec<(&str, &str)> = sheets
        .flat_map(|sheet| sheet.columns.iter().map(|column| (sheet.name, column.name)))
        .collect();
    let is_copied = |table: &str, column: &str| {
        // One sheet for two tables.
        let sheet = if table.starts_with("delivery_") { "delivery" } else { table };
        copied.contains(&(sheet, column))
    };
    let is_listed = |table: &str, column: &str| {
        let mut listed = ELSEWHERE.iter();
        listed.any(|(name, columns)| {
            *name == table && (columns.is_empty() || columns.contains(&column))
        })
    };
    let mut unknown = Vec::new();
    for (table, column) in &columns {
        match (is_copied(table, column), is_listed(table, column)) {
            (true, true) => panic!("{table}.{column} is copied"),
            (false, false) => unknown.push(format!("{table}.{column}")),
            _ => {}
        }
    }
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

/// How long a check takes depends on how much there is; whoever waits for it can end it.
#[tokio::test]
async fn a_check_by_hand_takes_as_long_as_it_takes() {
    let url = database().await;
    drop(connect(&url).await);
    let client = raw(&url).await;
    let limited = "create function unlimited() returns boolean language plpgsql volatile as $$ begin
                       if current_setting('statement_timeout') <> '0' then raise exception 'a limit'; end if;
                       return true;
                   end $$;
                   alter table tally rename to tally_kept;
                   create view tally as select * from tally_kept where unlimited();
                   insert into tally_kept values (gen_random_uuid(), 0, 0, 0, 0, 0, 0)";
    client.batch_execute(limited).await.expect("a view");
    assert_eq!(inconsistencies(&options(&url)).await.expect("looked"), []);
}
