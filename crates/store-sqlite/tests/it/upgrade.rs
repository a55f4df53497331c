//! What older versions have written is all there, and goes on.

use std::path::Path;
use std::sync::Arc;

use posthorn_conformance::upgrade;
use posthorn_store::Store;
use posthorn_store_sqlite::{Damage, Depth, Options, SqliteStore, check_file};
use rusqlite::Connection;

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&Options::new(path)).expect("the store opens"))
}

async fn check(dump: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let conn = Connection::open(directory.path().join("posthorn.db")).expect("a file");
    conn.execute_batch(dump).expect("the dump");
    drop(conn);
    let store = open(directory.path());
    upgrade::check(&store).await;
    drop(store);
    let Damage { findings, .. } = check_file(directory.path(), Depth::Full).expect("a check");
    assert_eq!(findings, [""; 0]);
}

#[tokio::test]
async fn a_store_with_the_schema_of_version_9_is_all_there() {
    check(include_str!("upgrade/schema_9.sql")).await;
}

/// Makes what a dump for the next change of the schema is taken from:
/// `POSTHORN_FILL=/tmp/filled cargo test -p posthorn-store-sqlite -- --ignored fill_a_store`, then
/// `sqlite3 /tmp/filled/posthorn.db .dump`.
#[tokio::test]
#[ignore = "writes where the environment says"]
async fn fill_a_store() {
    let path = std::env::var("POSTHORN_FILL").expect("POSTHORN_FILL names a directory");
    let store = open(Path::new(&path));
    upgrade::fill(&store).await;
}
