//! Opening the database of a notifier, and an engine on it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use posthorn_domain::Span;
use posthorn_engine::{Engine, Options, OutcomeStream, Parts};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::Store;
use posthorn_store_postgres::PostgresStore;
use posthorn_store_sqlite::SqliteStore;
use tracing::error;

use crate::config::Callbacks;
use crate::error::Error;
use crate::retryable::Outside;

/// The file beside the data with the key that seals secrets.
const KEY_FILE: &str = "seal.key";
/// How long an event's id is remembered: as long as receivers should.
const IDS_KEPT: Span = Span::from_secs(7 * 86_400);

/// A database that has to be closed.
pub(super) enum Opened {
    Sqlite(Arc<SqliteStore>),
    Postgres,
}

impl Opened {
    pub(super) async fn close(&self) {
        if let Self::Sqlite(store) = self
            && let Err(problem) = store.close().await
        {
            error!(%problem, "the database did not close well; the next start recovers");
        }
    }
}

/// An engine on a database of its own, with all outcomes from the first on.
pub(super) struct OwnEngine {
    pub(super) engine: Engine,
    pub(super) outcomes: OutcomeStream,
    pub(super) opened: Opened,
}

pub(super) async fn sqlite(
    folder: &Path,
    key: Option<VaultKey>,
    callbacks: &Callbacks,
    outside: &Outside,
) -> Result<OwnEngine, Error> {
    let options = posthorn_store_sqlite::Options::new(folder);
    let store = tokio::task::spawn_blocking(move || SqliteStore::open(&options)).await;
    let store = store.map_err(|crash| Error::Open(crash.to_string()))?;
    let store = Arc::new(store.map_err(|e| Error::Open(chain(&e)))?);
    let key = match key {
        Some(key) => key,
        None => key_beside(folder)?,
    };
    let started = start(Arc::<SqliteStore>::clone(&store), key, callbacks, outside).await;
    let opened = Opened::Sqlite(store);
    match started {
        Ok((engine, outcomes)) => Ok(OwnEngine { engine, outcomes, opened }),
        Err(error) => {
            opened.close().await;
            Err(error)
        }
    }
}

pub(super) async fn postgres(
    url: String,
    key: Option<VaultKey>,
    callbacks: &Callbacks,
    outside: &Outside,
) -> Result<OwnEngine, Error> {
    // Also without secrets of one's own: any process may get to send what another one sealed.
    let Some(key) = key else {
        let problem = "secrets in PostgreSQL are sealed: give every process on it the same key with \
                       seal_key; `posthorn keys generate-seal` makes one";
        return Err(Error::SealKey(problem.to_owned()));
    };
    let store = PostgresStore::connect(posthorn_store_postgres::Options::new(url)).await;
    let store = Arc::new(store.map_err(|e| Error::Open(chain(&e)))?);
    let (engine, outcomes) = start(store, key, callbacks, outside).await?;
    Ok(OwnEngine { engine, outcomes, opened: Opened::Postgres })
}

async fn start(
    store: Arc<dyn Store>,
    key: VaultKey,
    callbacks: &Callbacks,
    outside: &Outside,
) -> Result<(Engine, OutcomeStream), Error> {
    let vault = Vault::new(vec![key]).map_err(|e| Error::SealKey(e.to_string()))?;
    let mut options = Options { key_retention: IDS_KEPT, ..Options::default() };
    if let Some(poll) = callbacks.poll_interval {
        options.poll = poll.to_duration();
    }
    let parts = Parts {
        store,
        transport: outside.transport()?,
        push: None,
        vault: Arc::new(vault),
        clock: Arc::clone(&outside.clock),
        seed: rand::random(),
        options,
    };
    Ok(Engine::start_followed(parts).await?)
}

/// The key in the file beside the data; made the first time, for its owner's eyes only.
fn key_beside(folder: &Path) -> Result<VaultKey, Error> {
    let file = folder.join(KEY_FILE);
    let unusable = |problem: String| Error::SealKey(format!("{}: {problem}", file.display()));
    match std::fs::read_to_string(&file) {
        Ok(text) => VaultKey::parse(text.trim()).map_err(|e| unusable(e.to_string())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let key = VaultKey::generate();
            write_new(&file, folder, &key).map_err(|e| unusable(e.to_string()))?;
            Ok(key)
        }
        Err(e) => Err(unusable(e.to_string())),
    }
}

fn write_new(file: &Path, folder: &Path, key: &VaultKey) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(file)?;
    writeln!(out, "{}", key.to_text())?;
    out.sync_all()?;
    std::fs::File::open(folder)?.sync_all()
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
