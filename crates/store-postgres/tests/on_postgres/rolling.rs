//! Programs of two versions on one database: who may go on, who may start, who is refused, and with which words.

use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::builders::at;
use posthorn_conformance::upgrade;
use posthorn_domain::{CatalogVersion, NodeId};
use posthorn_store::schema::{Migration, Mismatch, Schema};
use posthorn_store::{Error, Heartbeat, Store};
use posthorn_store_postgres::PostgresStore;
use posthorn_testkit::postgres::shared;
use tokio_postgres::Client;

use super::fixture::{database, options, raw, until_somebody_waits};

/// A column more in every table, and a table more.
const WIDER: Migration = Migration::beside(
    "do $$ declare name text; begin
        for name in select c.relname from pg_class c where c.relnamespace = 'public'::regnamespace
            and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'migration' loop
            execute format('alter table %I add column added_later text', name);
        end loop;
    end $$;
    create table later (one bigint primary key);
    insert into later values (1);",
);
/// Whoever does not know of it cannot store events.
const OTHER: Migration = Migration::alone(
    "alter table event rename column topic to subject;
    create table other (one bigint primary key);
    insert into other values (1);",
);
const ADDS_TO_EVENTS: Migration =
    Migration::beside("alter table event add column added_later text");

fn today() -> &'static Schema {
    PostgresStore::schema()
}

async fn start(url: &str, schema: &Schema) -> Result<PostgresStore, Error> {
    PostgresStore::connect_as(options(url), schema).await
}

#[track_caller]
fn refusal(started: Result<PostgresStore, Error>) -> Mismatch {
    let error = started.map(drop).expect_err("a refusal");
    Mismatch::behind(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

/// What a node says of itself.
async fn beat(store: &PostgresStore, number: u128) -> Result<NodeId, Error> {
    let node = NodeId::new(at(0), number);
    let (ttl, version) = (Duration::from_secs(60), "1.2.3");
    let catalog = CatalogVersion(0);
    store.heartbeat(Heartbeat { node, ttl, catalog, version }).await.map(|_| node)
}

/// Every column of every table, and every version.
async fn shown(client: &Client) -> Vec<String> {
    let text = "select format('%s.%s %s', table_name, column_name, data_type)
        from information_schema.columns where table_schema = 'public'
        union all select to_jsonb(m)::text from migration m order by 1";
    let rows = client.query(text, &[]).await.expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_nothing_is_changed() {
    let url = database().await;
    let newer = today().and(OTHER);
    drop(start(&url, &newer).await.expect("the newer program"));
    let client = raw(&url).await;
    let before = shown(&client).await;
    let refused = refusal(start(&url, today()).await);
    let known = today().known();
    let wanted = Mismatch::Newer {
        found: known + 1,
        least: known + 1,
        known,
        program: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    assert_eq!(refused, wanted);
    assert_eq!(shown(&client).await, before);
}

#[tokio::test]
async fn a_database_that_is_too_old_is_refused_and_nothing_is_changed() {
    let url = database().await;
    let client = raw(&url).await;
    let before = shown(&client).await;
    let known = today().known();
    let refused = refusal(start(&url, &today().and(WIDER).since(known + 1)).await);
    assert_eq!(refused, Mismatch::TooOld { found: known, oldest: known + 1 });
    assert_eq!(shown(&client).await, before);
}

/// The program of today runs while a newer one adds to every table; it goes on with everything it does, and so
/// does another one that is started afterwards.
#[tokio::test]
async fn an_older_program_goes_on_and_starts_beside_what_only_adds() {
    let url = database().await;
    let older = Arc::new(start(&url, today()).await.expect("today's program"));
    let store: Arc<dyn Store> = Arc::<PostgresStore>::clone(&older);
    upgrade::fill(&store).await;
    let newer = start(&url, &today().and(WIDER)).await.expect("the newer program");
    upgrade::check(&store).await;
    beat(&older, 1).await.expect("a sign of life");
    drop(store);
    drop(older);
    let again = start(&url, today()).await.expect("today's program, again");
    beat(&again, 2).await.expect("a sign of life");
    beat(&newer, 3).await.expect("a sign of life");
    let client = raw(&url).await;
    let row = client.query_one("select count(*) from node", &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 3);
}

#[tokio::test]
async fn what_older_programs_cannot_use_waits_until_they_are_stopped() {
    let url = database().await;
    let older = start(&url, today()).await.expect("today's program");
    let node = beat(&older, 1).await.expect("a sign of life");
    let client = raw(&url).await;
    let before = shown(&client).await;
    let newer = today().and(OTHER);
    let refused = refusal(start(&url, &newer).await);
    let told = refused.to_string();
    for part in [
        format!("schema version {} cannot be applied", newer.known()),
        format!("node {node} (Posthorn 1.2.3)"),
        format!("of a program that knows schema version {}", today().known()),
    ] {
        assert!(told.contains(&part), "{part}: {told}");
    }
    assert!(refused.advice().contains("stop all of them"), "{}", refused.advice());
    assert_eq!(shown(&client).await, before);
    // Its sign of life lasts for a minute, but it is not at work any more.
    drop(older);
    let newer = loop {
        match start(&url, &newer).await {
            Ok(store) => break store,
            Err(error) => drop(refusal(Err(error))),
        }
    };
    beat(&newer, 2).await.expect("a sign of life");
}

/// One that lost all its connections, and comes back to a schema that it cannot use.
#[tokio::test]
async fn an_older_program_that_comes_back_is_refused_for_good() {
    let url = database().await;
    let older = start(&url, today()).await.expect("today's program");
    beat(&older, 1).await.expect("a sign of life");
    let client = raw(&url).await;
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'posthorn' and datname = current_database()";
    let newer = loop {
        client.execute(cut, &[]).await.expect("they are cut off");
        if let Ok(store) = start(&url, &today().and(OTHER)).await {
            break store;
        }
    };
    let refused = loop {
        // The first call finds out that its connection is gone.
        match beat(&older, 1).await {
            Err(error) if error.is_transient() => {}
            Err(error) => break error,
            Ok(_) => panic!("it must not go on"),
        }
    };
    assert!(matches!(Mismatch::behind(&refused), Some(Mismatch::Newer { .. })), "{refused:?}");
    drop(newer);
}

/// Programs of before the rule hold no gate, but they have a slot of the tally.
#[tokio::test]
async fn a_program_of_before_the_rule_is_noticed() {
    let url = database().await;
    let before = raw(&url).await;
    before.execute("select pg_advisory_lock(720104, 77)", &[]).await.expect("a slot");
    let newer = today().and(OTHER);
    let told = refusal(start(&url, &newer).await).to_string();
    assert!(told.contains("1 connection from") && told.contains("does not say"), "{told}");
    start(&url, &today().and(WIDER)).await.expect("what only adds is no matter to it");
}

async fn check_together(next: Migration, table: &str) {
    let url = database().await;
    let newer = today().and(next);
    let started = futures_util::future::join_all((0..4).map(|_| start(&url, &newer))).await;
    let stores: Vec<_> = started.into_iter().map(|store| store.expect("all start")).collect();
    let rows = raw(&url).await.query(&format!("select one from {table}"), &[]).await;
    assert_eq!(rows.expect("the table is there").len(), 1);
    drop(stores);
}

#[tokio::test]
async fn nodes_that_start_together_migrate_once() {
    check_together(WIDER, "later").await;
    check_together(OTHER, "other").await;
}

/// Somebody reads events and does not end its transaction. Nobody else has to wait for that.
#[tokio::test]
async fn a_migration_that_waits_for_a_lock_lets_others_through() {
    let url = database().await;
    let older: Arc<dyn Store> = Arc::new(start(&url, today()).await.expect("today's program"));
    let reader = raw(&url).await;
    reader.batch_execute("begin; select count(*) from event").await.expect("a reader");
    let newer = today().and(ADDS_TO_EVENTS);
    let starting = tokio::spawn({
        let (url, newer) = (url.clone(), newer.clone());
        async move { start(&url, &newer).await }
    });
    until_somebody_waits(&raw(&url).await).await;
    // Publishes, delivers and lists.
    upgrade::fill(&older).await;
    assert!(!starting.is_finished(), "it waits for the reader");
    reader.batch_execute("commit").await.expect("the reader is done");
    starting.await.expect("no panic").expect("the newer program");
    upgrade::check(&older).await;
}

/// Two servers in two schemas of one database have nothing to do with each other.
#[tokio::test]
async fn programs_in_another_schema_are_nobodys_business() {
    let url = shared().create_database("two_schemas").expect("a database");
    let place = |name: &str| posthorn_store_postgres::Options {
        schema: Some(name.to_owned()),
        ..options(&url)
    };
    let one = PostgresStore::connect_as(place("one"), today()).await.expect("the first");
    drop(PostgresStore::connect_as(place("two"), today()).await.expect("the second"));
    let newer = today().and(OTHER);
    let two = loop {
        match PostgresStore::connect_as(place("two"), &newer).await {
            Ok(store) => break store,
            // The connections of the one before are about to end.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    };
    let told = refusal(PostgresStore::connect_as(place("one"), &newer).await).to_string();
    assert!(told.contains("knows schema version"), "{told}");
    beat(&one, 1).await.expect("the first goes on");
    beat(&two, 1).await.expect("the second is newer");
}

/// One takes its time with what needs to be alone; the others begin when it is done, however long that takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_during_a_long_migration_waits_for_it() {
    const LONG: Migration =
        Migration::alone("select pg_sleep(4); create table long (one bigint primary key)");
    let url = database().await;
    let newer = today().and(LONG);
    let hasty = || posthorn_store_postgres::Options {
        statement_timeout: Duration::from_secs(1),
        ..options(&url)
    };
    let first = tokio::spawn({
        let (hasty, newer) = (hasty(), newer.clone());
        async move { PostgresStore::connect_as(hasty, &newer).await }
    });
    let client = raw(&url).await;
    let asleep = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event = 'PgSleep'";
    while client.query_one(asleep, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = PostgresStore::connect_as(hasty(), &newer).await.expect("it waited");
    beat(&second, 2).await.expect("a sign of life");
    let first = first.await.expect("no panic").expect("it migrated");
    beat(&first, 1).await.expect("a sign of life");
}

/// Several locks, each had in time, but all together too late for one statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_whose_statement_took_too_long_is_tried_again() {
    // Says that it took too long the first time, which a sequence remembers, as the server does after half a minute.
    const SLOW: Migration = Migration::beside(
        "do $$ begin
            if nextval('tries') = 1 then
                raise exception 'too late' using errcode = '57014';
            end if;
        end $$;
        create table later (one bigint primary key)",
    );
    let url = database().await;
    let client = raw(&url).await;
    client.batch_execute("create sequence tries").await.expect("a sequence");
    start(&url, &today().and(SLOW)).await.expect("it is tried again");
    let row = client.query_one("select last_value from tries", &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 2);
    // What nobody limits was ended by somebody, who means it.
    const ENDED: Migration = Migration::alone(
        "do $$ begin
            if nextval('tries') > 0 then
                raise exception 'enough' using errcode = '57014';
            end if;
        end $$",
    );
    start(&url, &today().and(SLOW).and(ENDED)).await.map(drop).expect_err("it is not");
    let row = client.query_one("select last_value from tries", &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 3);
}
