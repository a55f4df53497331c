//! Databases for tests: each gets its own, copied from one that is migrated already.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use posthorn_conformance::Fixture;
use posthorn_conformance::push::PushFixture;
use posthorn_store::{PushStore, Store};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::postgres::shared;
use tokio::sync::OnceCell;

const TEMPLATE: &str = "template_posthorn";

/// Options with few connections: many tests run at once.
pub(crate) fn options(url: &str) -> Options {
    Options { connections: 4, ..Options::new(url) }
}

pub(crate) async fn connect(url: &str) -> PostgresStore {
    PostgresStore::connect(options(url)).await.expect("a connection")
}

/// A fresh database on the shared server.
pub(crate) async fn database() -> String {
    static MIGRATED: OnceCell<()> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    MIGRATED
        .get_or_init(|| async {
            let url = shared().create_database(TEMPLATE).expect("a database");
            drop(connect(&url).await);
            // Nobody may be connected to a database that is copied.
            let left =
                format!("select count(*) from pg_stat_activity where datname = '{TEMPLATE}'");
            while shared().sql(&left).expect("a count").trim() != "0" {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    shared().copy_database(&name, TEMPLATE).expect("a copy")
}

/// Remembers which store is on which database.
#[derive(Default)]
pub(crate) struct Databases {
    stores: Mutex<Vec<(usize, String)>>,
}

fn address<S: ?Sized>(store: &Arc<S>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

impl Databases {
    /// Where a store has its data.
    pub(crate) fn url_of<S: ?Sized>(&self, store: &Arc<S>) -> String {
        let wanted = address(store);
        let stores = self.stores.lock().expect("not poisoned");
        let found = stores.iter().rev().find(|(at, _)| *at == wanted);
        found.expect("a store of this fixture").1.clone()
    }

    async fn fresh(&self) -> Arc<PostgresStore> {
        let url = database().await;
        crate::pooler::prepare(&url).await;
        self.open(url).await
    }

    async fn open(&self, url: String) -> Arc<PostgresStore> {
        let options = crate::pooler::way_to(&url).await;
        let store = Arc::new(PostgresStore::connect(options).await.expect("a connection"));
        self.stores.lock().expect("not poisoned").push((address(&store), url));
        store
    }
}

#[async_trait]
impl Fixture for Databases {
    async fn store(&self) -> Arc<dyn Store> {
        self.fresh().await
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let url = self.url_of(&store);
        drop(store);
        self.open(url).await
    }
}

#[async_trait]
impl PushFixture for Databases {
    async fn push_store(&self) -> Arc<dyn PushStore> {
        self.fresh().await
    }

    async fn peer(&self, store: &Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        self.open(self.url_of(store)).await
    }

    async fn reopen_push(&self, store: Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        let url = self.url_of(&store);
        drop(store);
        self.open(url).await
    }
}

/// A plain connection, for what the store does not offer.
pub(crate) async fn raw(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Waits until somebody waits for a lock.
pub(crate) async fn until_somebody_waits(client: &tokio_postgres::Client) {
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    loop {
        let row = client.query_one(waiting, &[]).await.expect("a count");
        if row.get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// An id as the database reads it.
pub(crate) fn uuid_text(id: posthorn_domain::DeliveryId) -> String {
    id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
