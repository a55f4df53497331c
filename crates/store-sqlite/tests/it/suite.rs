//! The contract.

use std::sync::Arc;

use async_trait::async_trait;
use posthorn_conformance::Fixture;
use posthorn_conformance::push::PushFixture;
use posthorn_store::{PushStore, Store};
use posthorn_store_sqlite::{Options, SqliteStore};

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn open(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&Options::new(self.0.path())).expect("the store opens"))
    }
}

#[async_trait]
impl Fixture for Sqlite {
    async fn store(&self) -> Arc<dyn Store> {
        self.open()
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        // Without closing: the log is what a crash would leave.
        assert_eq!(Arc::strong_count(&store), 1, "nobody else uses it");
        drop(store);
        self.open()
    }
}

#[async_trait]
impl PushFixture for Sqlite {
    async fn push_store(&self) -> Arc<dyn PushStore> {
        self.open()
    }

    async fn peer(&self, store: &Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        Arc::clone(store)
    }

    async fn reopen_push(&self, store: Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        assert_eq!(Arc::strong_count(&store), 1, "nobody else uses it");
        drop(store);
        self.open()
    }
}

posthorn_conformance::conformance_suite!(Sqlite::new());
posthorn_conformance::push_conformance_suite!(Sqlite::new());
