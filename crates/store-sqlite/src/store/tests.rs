//! What happens when SQLite or the disk says no. Failures are put in by hand.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_conformance::builders::{delivery, event, subscription};
use posthorn_domain::{Event, TenantId};
use posthorn_store::{Accepted, Along, Refusal};
use rusqlite::ffi;

use super::*;

fn fresh() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(&Options::new(directory.path())).expect("a fresh store");
    (directory, store)
}

fn new_event(event: Event) -> NewEvent {
    let catalog = CatalogVersion(1);
    NewEvent { event: Arc::new(event), idempotency: None, catalog, deliveries: vec![] }
}

fn failure(code: ffi::ErrorCode, extended_code: i32) -> Failure {
    Failure::Sql(rusqlite::Error::SqliteFailure(ffi::Error { code, extended_code }, None))
}

#[tokio::test(flavor = "multi_thread")]
async fn poisonous_command_hurts_only_itself() {
    let (_directory, store) = fresh();
    let store = Arc::new(store);
    let used = event(TenantId::DEFAULT);
    store.accept(vec![new_event(used.clone())]).await.expect("accept");
    let mut tasks = Vec::new();
    for number in 0..60 {
        let store = Arc::clone(&store);
        let poison = number % 6 == 0;
        let event = if poison { used.clone() } else { event(TenantId::DEFAULT) };
        tasks.push(tokio::spawn(async move {
            // Two items: the good one before the poison must not stay either.
            let other = posthorn_conformance::builders::event(TenantId::DEFAULT);
            (poison, store.accept(vec![new_event(other), new_event(event)]).await)
        }));
    }
    for task in tasks {
        match task.await.expect("no task panics") {
            (true, result) => {
                let refused = Err::<(), _>(result.expect_err("the id is taken"));
                assert!(matches!(refused, Err(Error::Refused(Refusal::AlreadyExists))));
            }
            (false, result) => {
                assert!(matches!(result.expect("accept")[1], Accepted::Stored(_)));
            }
        }
    }
    let counts = store.counts(None).await.expect("counts");
    assert_eq!(counts.events, 1 + 50 * 2);
}

#[tokio::test]
async fn full_disk_refuses_and_recovers() {
    let (_directory, store) = fresh();
    let limit = |pages: i64| {
        move |writer: &mut Writer| {
            let sql = format!("pragma max_page_count = {pages}");
            Ok(writer.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?)
        }
    };
    store.write(LIGHT, limit(1)).await.expect("SQLite keeps it at the present size");
    let big = Event { payload: Bytes::from(vec![1; 1 << 20]), ..event(TenantId::DEFAULT) };
    let refused = store.accept(vec![new_event(big.clone())]).await.expect_err("no room");
    assert!(matches!(refused, Error::DiskFull { .. }));
    assert!(refused.is_transient());
    assert_eq!(store.event(TenantId::DEFAULT, big.id).await.expect("a lookup"), None);
    store.write(LIGHT, limit(1_000_000)).await.expect("room again");
    let accepted = store.accept(vec![new_event(big)]).await.expect("accept");
    assert!(matches!(accepted[0], Accepted::Stored(_)));
}

#[tokio::test]
async fn io_error_ends_the_store() {
    let (directory, store) = fresh();
    let kept = event(TenantId::DEFAULT);
    store.accept(vec![new_event(kept.clone())]).await.expect("accept");
    let broken = store
        .write(LIGHT, |_| Err::<(), _>(failure(ffi::ErrorCode::SystemIoFailure, 1034)))
        .await
        .expect_err("a failed sync");
    assert!(matches!(broken, Error::Fatal { .. }), "{broken:?}");
    let ping = store.ping().await;
    assert!(matches!(ping, Err(Error::Fatal { .. })), "{ping:?}");
    let accept = store.accept(vec![]).await;
    assert!(matches!(accept, Err(Error::Fatal { .. })), "{accept:?}");
    let read = store.counts(None).await;
    assert!(matches!(read, Err(Error::Fatal { .. })), "{read:?}");
    drop(store);
    let store = SqliteStore::open(&Options::new(directory.path())).expect("a restart recovers");
    assert!(store.event(TenantId::DEFAULT, kept.id).await.expect("a lookup").is_some());
}

#[tokio::test]
async fn corrupt_row_is_named() {
    let (_directory, store) = fresh();
    let subscription = subscription(TenantId::DEFAULT);
    let plan = delivery(subscription.id, None);
    let change = CatalogChange::CreateSubscription(Box::new(subscription));
    let catalog = store.change_catalog(change).await.expect("subscribe");
    let new =
        NewEvent { catalog, deliveries: vec![plan.clone()], ..new_event(event(TenantId::DEFAULT)) };
    store.accept(vec![new]).await.expect("accept");
    let spoil =
        |writer: &mut Writer| Ok(writer.conn.execute("update delivery set state = 99", [])?);
    store.write(LIGHT, spoil).await.expect("spoil");
    let error = store.delivery(TenantId::DEFAULT, plan.id).await.expect_err("a corrupt row");
    let Error::Fatal { source: Some(source), .. } = error else { panic!("fatal, not {error:?}") };
    assert_eq!(source.to_string(), "table delivery, row 1: there is no state 99");
}

#[tokio::test]
async fn rolled_back_leases_and_versions_are_forgotten() {
    let (_directory, store) = fresh();
    let node = posthorn_conformance::builders::node();
    let shard = Shard::all().next().expect("there are shards");
    let half = move |writer: &mut Writer| {
        write::membership::acquire(writer, node, &[shard], Duration::from_secs(60))?;
        let tenant = posthorn_conformance::builders::tenant();
        write::catalog::change(writer, &CatalogChange::CreateTenant(tenant), &Along::default())?;
        Err::<(), _>(failure(ffi::ErrorCode::ConstraintViolation, 787))
    };
    store.write(LIGHT, half).await.expect_err("rolled back");
    let beat =
        Heartbeat { node, ttl: Duration::from_secs(1), catalog: CatalogVersion(1), version: "1" };
    let membership = store.heartbeat(beat).await.expect("heartbeat");
    assert!(membership.holders.is_empty());
    assert_eq!(membership.catalog, CatalogVersion(1));
    let grants = store.acquire_shards(node, &[shard], Duration::from_secs(1)).await;
    assert_eq!(grants.expect("acquire")[0].epoch.0, 1);
}

#[tokio::test]
async fn closed_store_is_unavailable() {
    let (directory, store) = fresh();
    store.accept(vec![new_event(event(TenantId::DEFAULT))]).await.expect("accept");
    store.close().await.expect("close");
    let closed = store.ping().await.expect_err("closed");
    assert!(matches!(closed, Error::Unavailable { context: "it is closed", .. }), "{closed:?}");
    let log = directory.path().join("posthorn.db-wal");
    assert!(log.metadata().map_or(0, |log| log.len()) == 0, "the log was copied back");
    SqliteStore::open(&Options::new(directory.path())).expect("the directory is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_stays_short_although_somebody_always_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(directory.path());
    options.checkpoint_bytes = 1 << 20;
    let store = Arc::new(SqliteStore::open(&options).expect("a fresh store"));
    let reading: Vec<_> = (0..2)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                while store.counts(None).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut longest = 0;
    for _ in 0..60 {
        let big = || Event { payload: Bytes::from(vec![1; 1 << 15]), ..event(TenantId::DEFAULT) };
        let batch = (0..16).map(|_| new_event(big())).collect();
        store.accept(batch).await.expect("accept");
        let log = directory.path().join("posthorn.db-wal").metadata().expect("the log").len();
        longest = longest.max(log);
    }
    store.close().await.expect("close");
    for task in reading {
        task.await.expect("readers end with the store");
    }
    assert!(longest < 16 << 20, "{longest} bytes of log for 30 MiB of events");
}

#[tokio::test]
async fn wrong_counts_are_corrected() {
    let (_directory, store) = fresh();
    for _ in 0..3 {
        store.accept(vec![new_event(event(TenantId::DEFAULT))]).await.expect("accept");
    }
    assert_eq!(store.recount().await.expect("counts"), 0, "they are right");
    let spoil = |writer: &mut Writer| {
        Ok(writer.conn.execute("update tally set events = 70, pending = 9", [])?)
    };
    store.write(LIGHT, spoil).await.expect("spoiled");
    assert_eq!(store.recount().await.expect("counts"), 1);
    let counts = store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.pending), (3, 0));
    assert_eq!(store.recount().await.expect("counts"), 0);
}

/// A block that cannot be written now is written later, and nothing is missing meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_be_written_is_written_later() {
    let (_directory, store) = fresh();
    let limit = |pages: i64| {
        move |writer: &mut Writer| {
            let sql = format!("pragma max_page_count = {pages}");
            Ok(writer.conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?)
        }
    };
    let batch = (0..4_200).map(|_| new_event(event(TenantId::DEFAULT))).collect();
    store.accept(batch).await.expect("accept");
    store.write(LIGHT, limit(1)).await.expect("SQLite keeps it at the present size");
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    store.write(LIGHT, limit(1 << 30)).await.expect("room again");
    let blocks = |conn: &Connection| {
        Ok(conn.query_row("select count(*) from block where list = 1", [], |row| {
            row.get::<_, i64>(0)
        })?)
    };
    for _ in 0..100 {
        if store.read(blocks).await.expect("blocks") == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.read(blocks).await.expect("blocks"), 1);
    let mut listing =
        Listing { order: posthorn_store::Order::OldestFirst, after: None, limit: 1_000 };
    let mut all = 0;
    loop {
        let page =
            store.events(TenantId::DEFAULT, EventFilter::default(), listing).await.expect("a page");
        all += page.items.len();
        listing.after = page.last;
        if !page.more {
            break;
        }
    }
    assert_eq!(all, 4_200);
}
