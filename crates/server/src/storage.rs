//! Opening the store, with messages an operator can act on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use posthorn_store::Store;
use posthorn_store::push::PushStore;
use posthorn_store::schema::Mismatch;
use posthorn_store_postgres::PostgresStore;
use posthorn_store_sqlite::{OpenError, SqliteStore};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::config::{self, StoreKind};
use crate::exit::{Code, Failure};

/// Waits between tries to reach a database: quick at first, then patient.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What to do about a damaged store.
pub const RESTORE: &str = "a restart does not fix this: move the data directory away, restore the \
                           database from a backup, and check the disk; `posthorn check store` \
                           shows what is damaged";

/// What to do about a store that is not wholly there.
const REPEAT_COPY: &str = "run the same `posthorn store copy` again: it goes on where it stopped, and completes \
                           when no server works with the source; or remove the copy, and go on with the source";

/// An open store.
#[derive(Clone)]
pub enum Opened {
    /// In files.
    Sqlite(Arc<SqliteStore>),
    /// In a database.
    Postgres(Arc<PostgresStore>),
}

impl Opened {
    /// As the engine sees it.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::<SqliteStore>::clone(store),
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// As Web Push sees it.
    pub fn push_store(&self) -> Arc<dyn PushStore> {
        match self {
            Self::Sqlite(store) => Arc::<SqliteStore>::clone(store),
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// Whether it failed because what is stored is damaged.
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Sqlite(store) => store.is_damaged(),
            // The database tells its own operators.
            Self::Postgres(_) => false,
        }
    }

    /// Closes it in good order. What was acknowledged is safe without.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(store) => {
                if let Err(e) = store.close().await {
                    error!(error = %chain(&e), "the store did not close cleanly; the next start \
                                                recovers");
                }
            }
            // Its connections end with the process.
            Self::Postgres(_) => {}
        }
    }
}

/// Where the seal key is, unless the configuration says otherwise.
pub fn seal_file(data: &Path) -> PathBuf {
    data.join("seal.key")
}

/// Opens the store of a configuration. Waits for a database that is away, up to the time allowed.
pub async fn open(store: &config::Store) -> anyhow::Result<Opened> {
    match &store.kind {
        StoreKind::Sqlite => {
            let options = posthorn_store_sqlite::Options::new(&store.path);
            let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&options)).await?;
            let opened = opened.map_err(|e| explain_open(&e))?;
            Ok(Opened::Sqlite(Arc::new(opened)))
        }
        StoreKind::Postgres(options) => connect(options, store.start_timeout).await,
    }
}

/// What to tell whoever wants to open a store in files.
pub fn explain_open(error: &OpenError) -> Failure {
    let message = chain(error);
    match error {
        OpenError::Directory { path, .. } => {
            Failure::new(Code::CannotCreate, message).hint(format!(
                "give the user that runs Posthorn write permission for {}, or choose another \
                 directory with --data",
                path.display()
            ))
        }
        OpenError::InUse { .. } => Failure::new(Code::InUse, message)
            .hint("stop the other process, or choose another directory with --data"),
        OpenError::HalfCopied { .. } => Failure::new(Code::Config, message).hint(REPEAT_COPY),
        OpenError::Schema(mismatch) => Failure::new(Code::Config, message).hint(mismatch.advice()),
        OpenError::OlderSchema { .. } => Failure::new(Code::Config, message)
            .hint("start this version of Posthorn on it once, which brings the schema up to date"),
        OpenError::Setting { .. } => Failure::new(Code::Config, message)
            .hint("the file system may not support what durability needs; use a local disk"),
        damaged if damaged.is_damage() => Failure::new(Code::Damaged, message).hint(RESTORE),
        OpenError::Sqlite { .. } => Failure::new(Code::Io, message).hint(
            "check whether the disk is full, read-only or broken; see `df` and the system log",
        ),
        _ => Failure::new(Code::Failure, message),
    }
}

/// What to do about a database that cannot be reached.
fn unreachable_hint(message: &str) -> &'static str {
    // As rustls says it. The server answers, so waiting does not help.
    if message.contains("invalid peer certificate") {
        return "its certificate is not of a public authority, or not for this name: add sslrootcert=FILE to store.url \
                for an authority of your own; sslmode=disable uses no TLS";
    }
    "start it or correct store.url; store.start_timeout sets how long a start waits"
}

async fn connect(
    options: &posthorn_store_postgres::Options,
    patience: Duration,
) -> anyhow::Result<Opened> {
    let deadline = Instant::now() + patience;
    let mut wait = WAIT_FIRST;
    loop {
        let error = match PostgresStore::connect(options.clone()).await {
            Ok(store) => return Ok(Opened::Postgres(Arc::new(store))),
            Err(error) => error,
        };
        let message = chain(&error);
        if let Some(mismatch) = Mismatch::behind(&error) {
            let message = format!("cannot use PostgreSQL: {mismatch}");
            return Err(Failure::new(Code::Config, message).hint(mismatch.advice()).into());
        }
        if !error.is_transient() {
            if let Ok(Some(_)) = posthorn_store_postgres::unfinished_copy(options).await {
                let message = format!("cannot use PostgreSQL: {message}");
                return Err(Failure::new(Code::Config, message).hint(REPEAT_COPY).into());
            }
            return Err(Failure::new(Code::Config, format!("cannot use PostgreSQL: {message}"))
                .hint("check store.url: user, password, database, and the permissions of the role")
                .into());
        }
        let hint = unreachable_hint(&message);
        if Instant::now() + wait >= deadline {
            return Err(Failure::new(
                Code::Unavailable,
                format!("PostgreSQL could not be reached within {patience:?}: {message}"),
            )
            .hint(hint)
            .into());
        }
        warn!(error = %message, hint, retry_in = ?wait, "PostgreSQL cannot be reached; retrying");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// Copies a SQLite store to a new file, as of one moment, also while a server works with it.
pub async fn backup(
    data: &Path,
    to: &Path,
    mut report: impl FnMut(u64, u64) + Send + 'static,
) -> anyhow::Result<()> {
    if !data.join("posthorn.db").exists() {
        return Err(Failure::new(
            Code::Failure,
            format!("there is no store in {}", data.display()),
        )
        .hint("name the data directory with --data, or the configuration with --config")
        .into());
    }
    if to.exists() {
        return Err(Failure::new(Code::CannotCreate, format!("{} already exists", to.display()))
            .hint("a backup never overwrites a file; choose another name")
            .into());
    }
    let (from, into) = (data.to_owned(), to.to_owned());
    let copy =
        move || posthorn_store_sqlite::backup_file(&from, &into, |p| report(p.done, p.total));
    let copied = tokio::task::spawn_blocking(copy).await?;
    copied.map_err(|e| Failure::new(Code::Io, chain(&e)))?;
    Ok(())
}

/// An error with all its causes, for one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
