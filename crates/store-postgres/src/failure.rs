//! What went wrong with the database, by what it means for the caller.
//!
//! The difference that matters is whether the change may have been made. A transaction that failed
//! before its commit was sent has changed nothing. When the connection breaks while a commit is on
//! its way, nobody knows. A pooler that lost the server behind it says so in an answer of its own, which is no answer to
//! the commit.

use deadpool_postgres::PoolError;
use posthorn_store::{Error, Refusal};
use tokio_postgres::error::{DbError, Severity, SqlState};

pub(crate) type Outcome<T> = Result<T, Failure>;

/// What went wrong inside a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database or the connection to it failed before the commit was sent.
    Database(tokio_postgres::Error),
    /// The same, with the commit possibly on its way.
    Committing(tokio_postgres::Error),
    /// It failed after a first transaction of the same call was committed: whatever the reason is, something was changed.
    Committed(tokio_postgres::Error),
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
            Self::Database(error) | Self::Committing(error) | Self::Committed(error) => {
                error.as_db_error().is_none_or(|db| {
                    ends_the_connection(db)
                        // It ended on a standby, or on a server that became one.
                        || *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION
                        || *db.code() == SqlState::FEATURE_NOT_SUPPORTED
                })
            }
            Self::NoConnection(_) | Self::Store(_) => false,
        }
    }

    /// The same of work that follows on a commit.
    pub(crate) fn after_a_commit(self) -> Self {
        match self {
            Self::Database(error) | Self::Committing(error) => Self::Committed(error),
            other => other,
        }
    }

    pub(crate) fn into_error(self, context: &'static str) -> Error {
        match self {
            Self::Store(error) => error,
            Self::NoConnection(error) => Error::unavailable(context, error),
            Self::Database(error) => classify(error, context, false),
            Self::Committing(error) => classify(error, context, true),
            Self::Committed(error) => Error::unknown(context, error),
        }
    }
}

/// The server is going away, or was told to end this connection; or somebody before it says that it is gone.
fn is_shutdown(state: &SqlState) -> bool {
    state.code().starts_with("08")
        || [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW]
            .contains(state)
}

/// Nothing more is heard on the connection after this. It says nothing of what was on its way.
fn ends_the_connection(db: &DbError) -> bool {
    is_shutdown(db.code())
        || matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// What an answer of the database means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Unavailable,
    Unknown,
    DiskFull,
    Fatal,
}

/// `ends`: the answer is the last one on its connection. `committing`: a commit may be on its way.
fn meaning(state: &SqlState, ends: bool, committing: bool) -> Meaning {
    let meaning = if *state == SqlState::DISK_FULL {
        Meaning::DiskFull
    } else {
        match &state.code()[..2] {
            // Lost connections, lack of resources, interventions, system errors, concurrency,
            // read-only.
            "08" | "53" | "57" | "58" | "40" | "25" | "55" | "0A" => Meaning::Unavailable,
            // Everything else is a defect of ours or of the data.
            _ => Meaning::Fatal,
        }
    };
    match meaning {
        // Without an answer to the commit itself nobody may say that nothing was changed.
        _ if ends && committing => Meaning::Unknown,
        // An answer to a statement: the transaction was rolled back.
        meaning => meaning,
    }
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
    match meaning(db.code(), ends_the_connection(db), committing) {
        Meaning::Unavailable => Error::unavailable(context, error),
        Meaning::Unknown => Error::unknown(context, error),
        Meaning::DiskFull => Error::disk_full(error),
        Meaning::Fatal => Error::fatal(context, error),
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::NoTls;

    use super::*;

    /// What a server says to the first statement, as the driver hears it.
    async fn said(severity: &str, state: &str, message: &str) -> tokio_postgres::Error {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let fields = format!("S{severity}\0V{severity}\0C{state}\0M{message}\0\0");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut heard = [0; 1024];
            let read = stream.read(&mut heard).await.expect("a greeting");
            assert!(read > 0);
            // Let in, and ready.
            let welcome = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
            stream.write_all(welcome).await.expect("a welcome");
            let read = stream.read(&mut heard).await.expect("a statement");
            assert!(read > 0);
            let length = u32::try_from(fields.len() + 4).expect("a short text").to_be_bytes();
            let answer = [b"E", &length[..], fields.as_bytes()].concat();
            stream.write_all(&answer).await.expect("an answer");
        });
        let url = format!("postgres://u@127.0.0.1:{port}/d");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("connected");
        tokio::spawn(connection);
        client.batch_execute("commit").await.expect_err("an error")
    }

    /// PgBouncer, when its server dies under it.
    #[tokio::test]
    async fn a_pooler_that_lost_its_server_does_not_know_what_became_of_a_commit() {
        let crashed = || said("FATAL", "08P01", "server conn crashed?");
        let failure = Failure::Committing(crashed().await);
        assert!(failure.connection_is_lost());
        let error = failure.into_error("commit");
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        // Before the commit was sent, nothing was changed.
        let failure = Failure::Database(crashed().await);
        assert!(failure.connection_is_lost());
        let error = failure.into_error("begin");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn what_follows_on_a_commit_never_says_that_nothing_was_changed() {
        let failure = Failure::Database(said("ERROR", "57014", "too late").await).after_a_commit();
        assert!(!failure.wants_repeat() && !failure.connection_is_lost());
        let error = failure.into_error("settle");
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        assert!(Failure::Database(said("FATAL", "08P01", "crashed").await).connection_is_lost());
    }

    #[test]
    fn an_answer_that_ends_the_connection_is_no_answer_to_a_commit() {
        use Meaning::{DiskFull, Fatal, Unavailable, Unknown};
        for (state, ends, committing, wanted) in [
            ("08P01", true, true, Unknown),
            ("08006", true, false, Unavailable),
            ("57P01", true, true, Unknown),
            ("57014", false, true, Unavailable),
            ("40P01", false, true, Unavailable),
            ("53100", false, true, DiskFull),
            // The server fell while it wrote the commit.
            ("53100", true, true, Unknown),
            ("58030", true, true, Unknown),
            ("58030", false, true, Unavailable),
            ("23505", false, true, Fatal),
            ("XX001", true, true, Unknown),
            ("XX001", true, false, Fatal),
            ("XX001", false, true, Fatal),
        ] {
            let found = meaning(&SqlState::from_code(state), ends, committing);
            assert_eq!(found, wanted, "{state} {ends} {committing}");
        }
    }
}
