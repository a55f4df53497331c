//! Copies made while the store works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use posthorn_conformance::builders::{delivery, event, subscription};
use posthorn_domain::{CatalogVersion, TenantId};
use posthorn_store::{CatalogChange, Error, NewEvent, Store};
use posthorn_store_sqlite::{Options, SqliteStore};

async fn publish(
    store: &SqliteStore,
    to: posthorn_domain::SubscriptionId,
    catalog: CatalogVersion,
) {
    let batch = (0..20).map(|_| NewEvent {
        event: Arc::new(event(TenantId::DEFAULT)),
        idempotency: None,
        catalog,
        deliveries: vec![delivery(to, None)],
    });
    store.accept(batch.collect()).await.expect("accept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_a_busy_store_is_complete_and_can_be_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Arc::new(SqliteStore::open(&Options::new(directory.path())).expect("a store"));
    let subscription = subscription(TenantId::DEFAULT);
    let to = subscription.id;
    let change = CatalogChange::CreateSubscription(Box::new(subscription));
    let catalog = store.change_catalog(change).await.expect("subscribe");
    for _ in 0..100 {
        publish(&store, to, catalog).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                publish(&store, to, catalog).await;
            }
        })
    };
    let copy = tempfile::tempdir().expect("a directory");
    let target = copy.path().join("posthorn.db");
    let reported = Arc::new(AtomicU64::new(0));
    let report = {
        let reported = Arc::clone(&reported);
        move |progress: posthorn_store_sqlite::Progress| {
            assert!(progress.done <= progress.total);
            reported.store(progress.done, Ordering::Relaxed);
        }
    };
    store.backup_to(&target, report).await.expect("a backup");
    stop.store(true, Ordering::Relaxed);
    busy.await.expect("the publisher ends");
    assert!(reported.load(Ordering::Relaxed) > 0);
    let again = store.backup_to(&target, |_| {}).await;
    assert!(matches!(again, Err(Error::Unavailable { .. })), "a backup is never written over");

    let copy = SqliteStore::open(&Options::new(copy.path())).expect("the copy opens");
    let counts = copy.counts(None).await.expect("counts");
    assert!(counts.events >= 2_000, "{counts:?}");
    assert_eq!(counts.events, counts.pending, "of one moment");
    let whole = copy.catalog_since(CatalogVersion(0)).await.expect("the catalog");
    assert_eq!(whole.subscriptions.len(), 1);
    publish(&copy, to, catalog).await;
}
