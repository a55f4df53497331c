//! Opening a database, and the key that seals its secrets.

#[cfg(feature = "sqlite")]
mod seal_key;

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use posthorn_sealing::vault::VaultKey;
use posthorn_store::Store;
#[cfg(feature = "postgres")]
use posthorn_store_postgres::PostgresStore;
#[cfg(feature = "sqlite")]
use posthorn_store_sqlite::SqliteStore;

use crate::error::Error;

/// Where the data is to be.
pub(crate) enum Place {
    #[cfg(feature = "sqlite")]
    Folder(PathBuf),
    #[cfg(feature = "sqlite")]
    Memory,
    #[cfg(feature = "postgres")]
    Postgres(String),
}

/// A database that is open.
pub(crate) enum Opened {
    #[cfg(feature = "sqlite")]
    Sqlite {
        store: Arc<SqliteStore>,
        /// Removed when it is dropped, after the store.
        _temporary: Option<tempfile::TempDir>,
    },
    #[cfg(feature = "postgres")]
    Postgres(Arc<PostgresStore>),
}

impl Opened {
    /// As the engine sees it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { store, .. } => Arc::<SqliteStore>::clone(store),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// As Web Push sees it.
    #[cfg(feature = "push")]
    pub(crate) fn push_store(&self) -> Arc<dyn posthorn_store::push::PushStore> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { store, .. } => Arc::<SqliteStore>::clone(store),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// Closes it in good order. What was acknowledged is safe without.
    pub(crate) async fn close(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { store, .. } => {
                if let Err(problem) = store.close().await {
                    tracing::error!(%problem, "the database did not close cleanly; the next start \
                                               recovers it");
                }
            }
            // Its connections end when it is dropped.
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
        }
    }
}

/// Opens the database, and finds the key that seals its secrets.
pub(crate) async fn open(place: Place, key: Option<VaultKey>) -> Result<(Opened, VaultKey), Error> {
    match place {
        #[cfg(feature = "sqlite")]
        Place::Folder(folder) => {
            let store = sqlite(folder.clone()).await?;
            let key = key.map_or_else(|| seal_key::beside(&folder), Ok)?;
            Ok((Opened::Sqlite { store, _temporary: None }, key))
        }
        #[cfg(feature = "sqlite")]
        Place::Memory => {
            let temporary = tempfile::Builder::new().prefix("posthorn-").tempdir();
            let temporary = temporary.map_err(Error::TemporaryFolder)?;
            let store = sqlite(temporary.path().to_owned()).await?;
            // Nobody will ever open it again.
            let key = key.unwrap_or_else(VaultKey::generate);
            Ok((Opened::Sqlite { store, _temporary: Some(temporary) }, key))
        }
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => {
            // Also without secrets of one's own: any process may get to send what another one sealed.
            let key = key.ok_or(Error::NoSealKey)?;
            let options = posthorn_store_postgres::Options::new(url);
            let store = PostgresStore::connect(options).await.map_err(Error::Postgres)?;
            Ok((Opened::Postgres(Arc::new(store)), key))
        }
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(folder: PathBuf) -> Result<Arc<SqliteStore>, Error> {
    let options = posthorn_store_sqlite::Options::new(folder);
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options)).await;
    let opened = opened.expect("opening does not panic, and nobody aborts it");
    Ok(Arc::new(opened.map_err(Error::Sqlite)?))
}
