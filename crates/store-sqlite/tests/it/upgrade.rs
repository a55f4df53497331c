//! What older versions have written is all there, and goes on. See `tests/fixtures/README.md`.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use posthorn_conformance::upgrade;
use posthorn_store::Store;
use posthorn_store::schema::Migration;
use posthorn_store_sqlite::{Damage, Depth, Options, SqliteStore, check_file};
use rusqlite::Connection;

/// The first version whose stores the larger script has filled.
const FULL_SCRIPT: u32 = 9;
/// The first version that has tables for Web Push.
const PUSH: u32 = 5;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The store that a program of this version has left, if one is kept.
fn left(version: u32) -> Option<String> {
    let file = std::fs::File::open(fixture(&format!("schema_{version:02}.sql.gz"))).ok()?;
    let mut dump = String::new();
    GzDecoder::new(file).read_to_string(&mut dump).expect("a dump");
    Some(dump)
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&Options::new(path)).expect("the store opens"))
}

fn run(path: &Path, sql: &str) {
    let conn = Connection::open(path.join("posthorn.db")).expect("a file");
    conn.execute_batch(sql).expect("the statements");
}

/// Takes the store that a program of `version` left, or else the last one before it, which is brought to that version first.
async fn check(version: u32) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let kept = (1..=version).rev().find_map(|kept| Some((kept, left(kept)?)));
    let (kept, dump) = kept.expect("a dump of the first version");
    run(path, &dump);
    let then = SqliteStore::schema().up_to(version);
    SqliteStore::migrate_as(&Options::new(path), &then).expect("the program of that version");
    if version >= PUSH {
        run(path, &std::fs::read_to_string(fixture("push.sql")).expect("the rows of Web Push"));
    }
    let opened = open(path);
    if version >= PUSH {
        upgrade::check_push(&*opened).await;
    }
    let store: Arc<dyn Store> = opened;
    if kept < FULL_SCRIPT {
        upgrade::check_early(&store).await;
    } else {
        upgrade::check(&store).await;
    }
    drop(store);
    let Damage { findings, .. } = check_file(path, Depth::Full).expect("a check");
    assert_eq!(findings, [""; 0], "version {version}");
}

#[tokio::test]
async fn stores_of_every_earlier_version_are_all_there() {
    for version in 1..=SqliteStore::schema().known() {
        check(version).await;
    }
}

/// A newer version has added a column to every table. Today's program does everything that it does.
#[tokio::test]
async fn today_s_program_works_beside_what_only_adds() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let store: Arc<dyn Store> = open(path);
    upgrade::fill(&store).await;
    drop(store);
    let conn = Connection::open(path.join("posthorn.db")).expect("a file");
    let text = "select group_concat('alter table ' || name || ' add column added_later text', '; ')
        from sqlite_schema where type = 'table' and name not like 'sqlite_%' and name <> 'migration'";
    let adds: String = conn.query_row(text, [], |row| row.get(0)).expect("tables");
    drop(conn);
    let newer = SqliteStore::schema().and(Migration::beside(adds.leak()));
    drop(SqliteStore::open_as(&Options::new(path), &newer).expect("the newer program"));
    let store: Arc<dyn Store> = open(path);
    upgrade::check(&store).await;
}

/// Makes what a dump for the next change of the schema is taken from: see `tests/fixtures/README.md`.
#[tokio::test]
#[ignore = "writes where the environment says"]
async fn fill_a_store() {
    let path = std::env::var("POSTHORN_FILL").expect("POSTHORN_FILL names a directory");
    let store: Arc<dyn Store> = open(Path::new(&path));
    upgrade::fill(&store).await;
}
