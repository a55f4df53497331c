//! What went wrong with the database, by what it means for the caller.
//!
//! The difference that matters is whether the change may have been made. A transaction that failed
//! before its commit was sent has changed nothing. When the connection breaks while a commit is on
//! its way, nobody knows.

use deadpool_postgres::PoolError;
use posthorn_store::{Error, Refusal};
use tokio_postgres::error::SqlState;

pub(crate) type Outcome<T> = Result<T, Failure>;

/// What went wrong inside a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database or the connection to it failed before the commit was sent.
    Database(tokio_postgres::Error),
    /// The same, with the commit possibly on its way.
    Committing(tokio_postgres::Error),
    /// No connection could be had.
    NoConnection(PoolError),
    /// The request is not possible, or a row is corrupt.
    Store(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Store(refusal.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    pub(crate) fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Database(error) | Self::Committing(error) => error.code(),
            _ => None,
        }
    }

    /// Whether the same transaction can be run again at once: the database asks for it, or a newer program has added a
    /// column, which a statement that was prepared before does not know. Nothing was changed then.
    pub(crate) fn wants_repeat(&self) -> bool {
        let state = self.state();
        state == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
            || state == Some(&SqlState::T_R_DEADLOCK_DETECTED)
            || state == Some(&SqlState::FEATURE_NOT_SUPPORTED)
    }

    /// Whether a unique index refused a row.
    pub(crate) fn is_repeated_row(&self) -> bool {
        self.state() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// Whether somebody held a lock for longer than we wait.
    pub(crate) fn is_lock_wait(&self) -> bool {
        self.state() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the connection is gone, or prepared statements on it are of no more use.
    pub(crate) fn connection_is_lost(&self) -> bool {
        match self {
            Self::Database(error) | Self::Committing(error) => match error.as_db_error() {
                None => true,
                Some(db) => {
                    is_shutdown(db.code())
                        // It ended on a standby, or on a server that became one.
                        || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION
                        || *db.code() == SqlState::FEATURE_NOT_SUPPORTED
                }
            },
            Self::NoConnection(_) | Self::Store(_) => false,
        }
    }

    pub(crate) fn into_error(self, context: &'static str) -> Error {
        match self {
            Self::Store(error) => error,
            Self::NoConnection(error) => Error::unavailable(context, error),
            Self::Database(error) => classify(error, context, false),
            Self::Committing(error) => classify(error, context, true),
        }
    }
}

/// The server is going away, or was told to end this connection.
fn is_shutdown(state: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW]
        .contains(state)
}

fn classify(error: tokio_postgres::Error, context: &'static str, committing: bool) -> Error {
    let Some(db) = error.as_db_error() else {
        // Values that the driver cannot convert never reach the server: a defect, not an outage.
        let converting = !error.is_closed() && !is_io(&error);
        return match (converting, committing) {
            (true, _) => Error::fatal(context, error),
            (false, true) => Error::unknown(context, error),
            (false, false) => Error::unavailable(context, error),
        };
    };
    let state = db.code().clone();
    if is_shutdown(&state) {
        return match committing {
            true => Error::unknown(context, error),
            false => Error::unavailable(context, error),
        };
    }
    if state == SqlState::DISK_FULL {
        return Error::disk_full(error);
    }
    // Answers to a statement: the transaction was rolled back.
    match &state.code()[..2] {
        // Lost connections, lack of resources, interventions, system errors, concurrency,
        // read-only.
        "08" | "53" | "57" | "58" | "40" | "25" | "55" | "0A" => Error::unavailable(context, error),
        // Everything else is a defect of ours or of the data.
        _ => Error::fatal(context, error),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<std::io::Error>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// A row that says what it cannot say.
#[derive(Debug, thiserror::Error)]
#[error("table {table}, row {id}: {problem}")]
pub(crate) struct Corrupt {
    pub(crate) table: &'static str,
    pub(crate) id: String,
    pub(crate) problem: String,
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Store(Error::fatal("read what is stored", corrupt))
    }
}
