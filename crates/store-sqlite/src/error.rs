//! What can go wrong inside, and what the caller is told about it.

use std::path::PathBuf;

use posthorn_store::schema::Mismatch;
use posthorn_store::{Error, Refusal};
use rusqlite::ErrorCode;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made or used.
    #[error(
        "cannot use the data directory {path}: it must be a directory that this process may \
             write"
    )]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else has it open.
    #[error("the data directory {path} is in use by another Posthorn process")]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// The schema of the database and this program do not fit.
    #[error(transparent)]
    Schema(#[from] Mismatch),
    /// It was written by an older program, and what was asked for brings nothing up to date.
    #[error("the database has schema version {found}, this Posthorn has {known}")]
    OlderSchema {
        /// In the file.
        found: u32,
        /// In this program.
        known: u32,
    },
    /// A copy into it was begun and is not complete.
    #[error("the store in {path} is a copy of {source_name} that is not complete")]
    HalfCopied {
        /// Where it is.
        path: PathBuf,
        /// Of what.
        source_name: String,
    },
    /// SQLite does not do what durability needs.
    #[error("SQLite setting {name} is {found}, it must be {wanted}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What was asked for.
        wanted: String,
        /// What SQLite says.
        found: String,
    },
    /// A thread could not be started.
    #[error("cannot start a storage thread")]
    Thread(#[source] std::io::Error),
    /// A row does not hold what was promised when it was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// SQLite says no.
    #[error("cannot open the database: {doing}")]
    Sqlite {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// Whether the database is damaged: only a backup helps.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite { source, .. } => is_damage(source),
            _ => false,
        }
    }

    pub(crate) fn sqlite(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Sqlite { doing, source }
    }
}

/// Whether SQLite says that the file is not what it was.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// A row that does not hold what was promised when it was written.
#[derive(Debug, thiserror::Error)]
#[error("table {table}, row {row}: {problem}")]
pub(crate) struct Corrupt {
    pub(crate) table: &'static str,
    pub(crate) row: String,
    pub(crate) problem: String,
}

/// Why an operation inside a transaction stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is not possible. Only ever returned before the operation wrote anything.
    Refused(Refusal),
    /// SQLite says no.
    Sql(rusqlite::Error),
    /// A row is corrupt.
    Corrupt(Corrupt),
    /// A rollback did not work, so nobody knows what the connection would commit next.
    Unsound(rusqlite::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Sql(error) | Self::Unsound(error) => error.fmt(f),
            Self::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl From<Error> for Failure {
    /// What the rules of the catalog have to say: they refuse, or cannot read a document.
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => Self::Refused(refusal),
            other => {
                let cause = std::error::Error::source(&other).map(ToString::to_string);
                let problem = cause.unwrap_or_else(|| other.to_string());
                Self::Corrupt(Corrupt { table: "entry", row: "a document".to_owned(), problem })
            }
        }
    }
}

/// What a failure means for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Only this command.
    Command,
    /// Every command now, but it may pass: nothing was written.
    Moment,
    /// The store can no longer promise anything.
    Store,
}

impl Failure {
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Self::Refused(_) => Scope::Command,
            Self::Corrupt(_) | Self::Unsound(_) => Scope::Store,
            Self::Sql(error) => match error.sqlite_error_code() {
                // The operating system broke a promise. Whether a failed sync left the data in its
                // cache or dropped it cannot be known, so it is never tried again.
                Some(
                    ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
                    | ErrorCode::FileLockingProtocolFailed
                    | ErrorCode::InternalMalfunction,
                ) => Scope::Store,
                Some(
                    ErrorCode::DiskFull
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::ReadOnly
                    | ErrorCode::OutOfMemory
                    | ErrorCode::PermissionDenied,
                ) => Scope::Moment,
                _ => Scope::Command,
            },
        }
    }

    /// Whether what is in the file is not what was written: a restart would find the same.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Corrupt(_) => true,
            Self::Sql(error) | Self::Unsound(error) => is_damage(error),
        }
    }

    /// What the caller is told.
    pub(crate) fn into_error(self, doing: &'static str) -> Error {
        let scope = self.scope();
        match self {
            Self::Refused(refusal) => refusal.into(),
            Self::Corrupt(corrupt) => Error::fatal("a stored row is corrupt", corrupt),
            Self::Unsound(error) => Error::fatal("rolling back", error),
            Self::Sql(error) => match (scope, error.sqlite_error_code()) {
                (Scope::Store, _) => Error::fatal(doing, error),
                (_, Some(ErrorCode::DiskFull)) => Error::disk_full(error),
                // Ids and names are checked before; what is left is an id that was used twice.
                (_, Some(ErrorCode::ConstraintViolation)) => Refusal::AlreadyExists.into(),
                _ => Error::unavailable(doing, error),
            },
        }
    }
}

/// An error with its cause, for one line.
pub(crate) fn text(error: &OpenError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
