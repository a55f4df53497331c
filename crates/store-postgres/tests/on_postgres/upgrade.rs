//! What older versions have written is all there, and goes on.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use futures_util::StreamExt as _;
use posthorn_conformance::upgrade;
use posthorn_store::Store;
use posthorn_store_postgres::PostgresStore;
use posthorn_testkit::postgres::shared;

use super::fixture::{connect, database, options, raw};

/// The first version whose stores the larger script has filled.
const FULL_SCRIPT: u32 = 9;
/// The first version that has tables for Web Push.
const PUSH: u32 = 5;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The store that a program of this version has left, if one is kept.
fn left(version: u32) -> Option<String> {
    let file = std::fs::File::open(fixture(&format!("schema_{version:02}.sql.gz"))).ok()?;
    let mut dump = String::new();
    GzDecoder::new(file).read_to_string(&mut dump).expect("a dump");
    Some(dump)
}

/// A database as a program of `version` left it, or else as the last one before did, brought to that version; with the version
/// that the dump is of.
async fn database_of(version: u32, name: &str) -> (u32, String) {
    let kept = (1..=version).rev().find_map(|kept| Some((kept, left(kept)?)));
    let (kept, dump) = kept.expect("a dump of the first version");
    let url = shared().create_database(name).expect("a database");
    raw(&url).await.batch_execute(&dump).await.expect("the dump");
    if version > kept {
        let then = PostgresStore::schema().up_to(version);
        let store = PostgresStore::connect_as(options(&url), &then).await;
        drop(store.expect("the program of that version"));
        let client = raw(&url).await;
        let others = "select count(*) from pg_stat_activity
            where datname = current_database() and application_name = 'posthorn'";
        while client.query_one(others, &[]).await.expect("a count").get::<_, i64>(0) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    (kept, url)
}

async fn check(version: u32) {
    let (kept, url) = database_of(version, &format!("upgrade_{version}")).await;
    if version >= PUSH {
        let rows = std::fs::read_to_string(fixture("push.sql")).expect("the rows of Web Push");
        raw(&url).await.batch_execute(&rows).await.expect("rows");
    }
    let opened = Arc::new(connect(&url).await);
    let recount = || async { connect(&url).await.recount().await.expect("a count") };
    assert_eq!(recount().await, 0, "the tally of version {version} is filled");
    if version >= PUSH {
        upgrade::check_push(&*opened).await;
    }
    let store: Arc<dyn Store> = opened;
    if kept < FULL_SCRIPT {
        upgrade::check_early(&store).await;
    } else {
        upgrade::check(&store).await;
    }
    assert_eq!(recount().await, 0, "the tally of version {version} goes on");
}

#[tokio::test]
async fn stores_of_every_earlier_version_are_all_there() {
    let versions = 1..=PostgresStore::schema().known();
    let checks = futures_util::stream::iter(versions.map(check));
    checks.buffer_unordered(3).collect::<Vec<()>>().await;
}

/// Makes the dump for the next change of the schema: see `tests/fixtures/README.md`.
#[tokio::test]
#[ignore = "writes where the environment says"]
async fn dump_a_store() {
    let path = std::env::var("POSTHORN_DUMP").expect("POSTHORN_DUMP names a file");
    let url = database().await;
    let store: Arc<dyn Store> = Arc::new(connect(&url).await);
    upgrade::fill(&store).await;
    let mut dump = std::process::Command::new("pg_dump");
    let file = format!("--file={path}");
    let dump = dump.args(["--inserts", "--no-owner", "--no-privileges", &file, &url]).status();
    assert!(dump.expect("pg_dump runs").success());
}

/// What older versions have written of outcomes, and of events that nobody wanted, can be filtered by.
#[tokio::test]
async fn a_history_of_version_9_can_be_filtered() {
    let (_, url) = database_of(9, "upgrade_9_log").await;
    let client = raw(&url).await;
    let failed = "update public.attempt set status = null, failure = 'connect_failed'
        where ctid = (select min(ctid) from public.attempt where not late) returning delivery::text";
    let row = client.query_one(failed, &[]).await.expect("an attempt");
    let store = connect(&url).await;
    let text = "select coalesce(d.outcome, l.outcome), a.no > 0 and a.tenant is not null
        from public.attempt a
        left join public.delivery_done d on d.id = a.delivery
        left join public.delivery_live l on l.id = a.delivery
        where a.delivery = $1::text::uuid and a.failure = 'connect_failed'";
    let found = client.query_one(text, &[&row.get::<_, &str>(0)]).await.expect("it");
    let wanted = posthorn_domain::Outcome::Failure(posthorn_domain::FailureCode::ConnectFailed);
    assert_eq!((found.get(0), found.get(1)), (wanted.code(), true));
    let unwanted = "select count(*) filter (where unwanted) = count(*) filter (
        where deliveries = '{}') from public.event";
    assert!(client.query_one(unwanted, &[]).await.expect("a count").get::<_, bool>(0));
    drop(store);
}
