//! This store as one side of a copy: all of it as rows that every store understands, and such rows made into a store.
//!
//! # Theory of operation
//! *Reading* is one snapshot on a thread of its own, which sends bites of rows while it walks; a server may go on working,
//! but its log cannot begin anew meanwhile. Small numbers become ids again. *Writing* gives new small numbers out, keeps
//! `seq` and the numbers of attempts, which are order, and leaves the index of the log to the indexer of the first start.
//!
//! A store that is being made has a table more, [`MARK`]: while it is there, no server starts. It goes with the last step.
//!
//! # What it must not know
//! What the other side is.

mod events;
mod reading;
mod sheets;
mod writing;

use std::fs::File;
use std::path::{Path, PathBuf};

use posthorn_domain::CatalogVersion;
use posthorn_store::CatalogDelta;
use rusqlite::{Connection, OptionalExtension};

use crate::error::{Failure, OpenError};
use crate::open::{self, DATABASE_FILE, Options};
use crate::{migrate, read};

pub use reading::CopyReading;
pub use writing::CopyTarget;
pub(crate) use writing::RECOUNT;

/// The table that says that a copy into this store is not complete.
pub(crate) const MARK: &str = "unfinished_copy";

/// A store that is copied.
pub struct CopySource {
    path: PathBuf,
    /// Held while no server has it.
    lock: Option<File>,
}

impl CopySource {
    /// Opens the store in a directory; nothing is changed in it. When no server uses it, none can until this is dropped.
    pub fn open(path: &Path) -> Result<Self, CopyError> {
        let file = path.join(DATABASE_FILE);
        if !file.exists() {
            return Err(CopyError::NoStore(path.to_owned()));
        }
        let conn = open::read_only(&file)?;
        let (found, known) = migrate::versions(&conn)?;
        if found < known {
            return Err(CopyError::OlderSchema { found, known });
        }
        if marked(&conn)?.is_some() {
            return Err(CopyError::Unfinished(path.to_owned()));
        }
        let lock = match open::lock(path) {
            Ok(lock) => Some(lock),
            Err(OpenError::InUse { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Whether no server uses it, so that nothing changes.
    pub fn is_at_rest(&self) -> bool {
        self.lock.is_some()
    }

    /// All of it as of now.
    pub fn reading(&self) -> Result<CopyReading, CopyError> {
        CopyReading::start(&self.path)
    }

    /// What the catalog holds.
    pub fn catalog(&self) -> Result<CatalogDelta, CopyError> {
        catalog(&open::read_only(&self.path.join(DATABASE_FILE))?)
    }
}

/// The whole catalog.
fn catalog(conn: &Connection) -> Result<CatalogDelta, CopyError> {
    read::catalog::since(conn, CatalogVersion(0)).map_err(|failure| match failure {
        Failure::Sql(source) | Failure::Unsound(source) => {
            OpenError::Sqlite { doing: "reading the catalog", source }.into()
        }
        other => OpenError::Damaged(other.to_string()).into(),
    })
}

/// Where a copy into this store that is not complete comes from.
pub(crate) fn marked(conn: &Connection) -> Result<Option<String>, OpenError> {
    let there = format!("select 1 from sqlite_schema where type = 'table' and name = '{MARK}'");
    let look = || -> rusqlite::Result<Option<String>> {
        match conn.query_row(&there, [], |_| Ok(())).optional()? {
            None => Ok(None),
            Some(()) => {
                let source = format!("select source from {MARK}");
                let source = conn.query_row(&source, [], |row| row.get(0)).optional()?;
                Ok(Some(source.unwrap_or_default()))
            }
        }
    };
    look().map_err(OpenError::sqlite("looking for an unfinished copy"))
}

/// Whether there is a store in a directory, and anything in it.
pub fn is_populated(path: &Path) -> bool {
    let file = path.join(DATABASE_FILE);
    file.exists()
        && open::read_only(&file).is_ok_and(|conn| is_empty(&conn).is_ok_and(|empty| !empty))
}

/// Whether nothing but what a new store has is in it.
fn is_empty(conn: &Connection) -> Result<bool, OpenError> {
    let sql = "select not exists (select 1 from event) and not exists (select 1 from audit) \
        and not exists (select 1 from push_agent) and (select count(*) from entry) < 2";
    conn.query_row(sql, [], |row| row.get(0)).map_err(OpenError::sqlite("looking what is in it"))
}

/// The connection that a copy is written with: as the writer of a server has it, but a commit does not wait for the disk. A
/// copy that is cut off is repeated; the last step waits.
fn connect(path: &Path) -> Result<Connection, OpenError> {
    let conn = open::writer(&Options::new(path))?;
    conn.execute_batch("pragma synchronous = normal; pragma foreign_keys = off")
        .map_err(OpenError::sqlite("configuring the connection"))?;
    Ok(conn)
}

/// Why a store cannot be one side of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is none.
    #[error("there is no store in {0}")]
    NoStore(PathBuf),
    /// It is a copy that is not complete itself.
    #[error("the store in {0} is a copy that is not complete")]
    Unfinished(PathBuf),
    /// It was begun from another one.
    #[error("the store in {path} is a copy of {source_name} that is not complete")]
    OtherSource {
        /// Where it is.
        path: PathBuf,
        /// Of what.
        source_name: String,
    },
    /// Something is in it.
    #[error("the store in {0} is not empty")]
    NotEmpty(PathBuf),
    /// It was written by an older program.
    #[error("the database has schema version {found}, this Posthorn has {known}")]
    OlderSchema {
        /// In the file.
        found: u32,
        /// In this program.
        known: u32,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The thread that reads could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}
