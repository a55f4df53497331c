//! What older versions have written is all there, and goes on.

use std::sync::Arc;

use posthorn_conformance::upgrade;
use posthorn_store::Store;
use posthorn_testkit::postgres::shared;

use super::fixture::{connect, database, raw};

async fn check(name: &str, dump: &str) {
    let url = shared().create_database(name).expect("a database");
    raw(&url).await.batch_execute(dump).await.expect("the dump");
    let store: Arc<dyn Store> = Arc::new(connect(&url).await);
    upgrade::check(&store).await;
}

#[tokio::test]
async fn a_store_with_the_schema_of_version_9_is_all_there() {
    check("upgrade_9", include_str!("upgrade/schema_9.sql")).await;
}

/// Makes the dump for the next change of the schema:
/// `POSTHORN_DUMP=/tmp/schema.sql cargo test -p posthorn-store-postgres -- --ignored dump_a_store`. Comments,
/// and lines that only `psql` understands (`\restrict`), are left out of what is kept.
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
