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
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0, "the tally is filled");
    upgrade::check(&store).await;
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0, "the tally goes on");
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

/// What older versions have written of outcomes, and of events that nobody wanted, can be filtered by.
#[tokio::test]
async fn a_history_of_version_9_can_be_filtered() {
    let url = shared().create_database("upgrade_9_log").expect("a database");
    let client = raw(&url).await;
    client.batch_execute(include_str!("upgrade/schema_9.sql")).await.expect("the dump");
    // The path of a dump is empty for as long as its connection lasts.
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
