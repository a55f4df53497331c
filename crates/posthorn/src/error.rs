//! What can go wrong, by what the caller should do about it.

use std::path::PathBuf;

use posthorn_domain::NameError;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody said where the data should be.
    #[error("choose where to store the data: a folder, a database, or memory")]
    NoDatabase,
    /// A network that should be open to receivers cannot be read.
    #[error("the allowed networks are not valid")]
    Network(#[source] posthorn_egress::AddressRuleError),
    /// The way out to the network cannot be set up.
    #[error("outgoing connections cannot be set up")]
    Egress(#[source] posthorn_egress::Error),
    /// The temporary folder of a database in memory cannot be made.
    #[error("a temporary folder cannot be created")]
    TemporaryFolder(#[source] std::io::Error),
    /// The database in a folder cannot be opened.
    #[cfg(feature = "sqlite")]
    #[error("the database cannot be opened")]
    Sqlite(#[source] posthorn_store_sqlite::OpenError),
    /// The PostgreSQL database cannot be used.
    #[cfg(feature = "postgres")]
    #[error("the database cannot be used")]
    Postgres(#[source] posthorn_store::Error),
    /// Secrets in PostgreSQL are sealed, and there is no key.
    #[error(
        "secrets in PostgreSQL are sealed: give every process that uses it the same key with \
         seal_key; `posthorn seal create` creates one"
    )]
    NoSealKey,
    /// The key that seals secrets cannot be read or written.
    #[error("the seal key in {} cannot be used", path.display())]
    SealKey {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A topic, an event type, a key or another name has a form that it must not have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A payload has no JSON form.
    #[error("the payload cannot be written as JSON")]
    Json(#[source] serde_json::Error),
    /// The engine said no.
    #[error(transparent)]
    Engine(#[from] posthorn_engine::Error),
}

impl Error {
    /// Whether the same may work later: a database that is away, or too much at once.
    pub fn is_transient(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(error) => error.is_transient(),
            Self::Engine(posthorn_engine::Error::Store(error)) => error.is_transient(),
            Self::Engine(error) => {
                use posthorn_engine::Error::{Busy, TooMany};
                matches!(error, Busy(_) | TooMany { .. })
            }
            _ => false,
        }
    }
}
