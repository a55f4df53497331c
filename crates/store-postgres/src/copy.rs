//! This store as one side of a copy: all of it as rows that every store understands, and such rows made into a store.
//!
//! # Theory of operation
//! *Reading* is one transaction on a connection of its own, at one snapshot; nodes may go on working. *Writing* makes the
//! partitions that are missing, and takes the index that allows a lane one head away while rows change one after another;
//! it comes back before the copy is compared.
//!
//! A store that is being made has a table more, `unfinished_copy`: while it is there, no server starts. It goes with the
//! last step.
//!
//! # What it must not know
//! What the other side is.

mod events;
mod reading;
mod sheets;
mod writing;

use std::time::Duration;

use deadpool_postgres::Object;
use posthorn_domain::CatalogVersion;
use posthorn_store::{CatalogDelta, Error, Result};
use tokio::time::sleep;

use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::session::Session;
use crate::{catalog, gate, migrate};

pub use reading::CopyReading;
pub use writing::CopyTarget;
pub(crate) use writing::check_complete;

const OPENING: &str = "look at the database";
/// How often, and how long in all, connections of a server may still be there that has stopped.
const CLOSING_TRIES: u32 = 20;
const CLOSING_PAUSE: Duration = Duration::from_millis(100);

/// A store that is copied.
pub struct CopySource {
    session: Session,
    name: String,
}

impl CopySource {
    /// Looks at the store of a database; nothing is changed in it.
    pub async fn open(options: &Options) -> Result<Self, CopyError> {
        let session = Session::direct(options)?;
        let client = connect(&session).await?;
        let look = async {
            let (found, known) = migrate::versions(&client).await?;
            Ok((found, known, marked(&client).await?, name(&client).await?))
        };
        let (found, known, mark, name) = look.await.map_err(opening)?;
        match found {
            0 => return Err(CopyError::NoStore),
            _ if found < known => return Err(CopyError::OlderSchema { found, known }),
            _ if mark.is_some() => return Err(CopyError::Unfinished),
            _ => {}
        }
        Ok(Self { session, name })
    }

    /// What tells this store from all others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether no node works with it.
    pub async fn is_at_rest(&self) -> Result<bool, CopyError> {
        let client = connect(&self.session).await?;
        Ok(has_no_node(&client).await.map_err(opening)?)
    }

    /// All of it as of now.
    pub async fn reading(&self) -> Result<CopyReading, CopyError> {
        Ok(CopyReading::start(connect(&self.session).await?).await.map_err(opening)?)
    }

    /// What the catalog holds.
    pub async fn catalog(&self) -> Result<CatalogDelta, CopyError> {
        Ok(catalog::since(&self.session, CatalogVersion(0)).await?)
    }
}

/// A connection on which statements may take their time.
async fn connect(session: &Session) -> Result<Object> {
    let client = session.connection(OPENING).await?;
    let settings = "set statement_timeout = 0; set lock_timeout = 0; \
                    set idle_in_transaction_session_timeout = 0; set cursor_tuple_fraction = 1";
    client.batch_execute(settings).await.map_err(|e| opening(e.into()))?;
    Ok(client)
}

fn opening(failure: Failure) -> Error {
    failure.into_error(OPENING)
}

/// Where a copy into this store that is not complete comes from.
pub(crate) async fn marked(client: &Object) -> Outcome<Option<String>> {
    let there = client.query_one("select to_regclass('unfinished_copy') is not null", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let rows = client.query("select source from unfinished_copy", &[]).await?;
    Ok(Some(rows.first().map_or_else(String::new, |row| row.get(0))))
}

/// Of what the store is a copy that is not complete; nothing for one that is whole.
pub async fn unfinished_copy(options: &Options) -> Result<Option<String>> {
    let client = connect(&Session::direct(options)?).await?;
    marked(&client).await.map_err(opening)
}

/// Whether no server works with the store. One that was silent for a lease may still be there, and so may one that has not said
/// yet that it is there: their connections tell. Those of a server that has just stopped are gone a moment later.
pub(crate) async fn has_no_node(client: &Object) -> Outcome<bool> {
    let sql = "select not exists (select from node where expires_at > clock_timestamp())";
    if !client.query_one(sql, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(false);
    }
    for _ in 0..CLOSING_TRIES {
        if !gate::has_servers(client).await? {
            return Ok(true);
        }
        sleep(CLOSING_PAUSE).await;
    }
    Ok(false)
}

/// What tells a store from all others: which server, database and schema.
async fn name(client: &Object) -> Outcome<String> {
    let sql = "select format('server %s, database %s, schema %s', \
               (select system_identifier from pg_control_system()), current_database(), \
               current_schema())";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// Why a store cannot be one side of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is none.
    #[error("there is no store in the database")]
    NoStore,
    /// It is a copy that is not complete itself.
    #[error("the store in the database is a copy that is not complete")]
    Unfinished,
    /// It was begun from another one.
    #[error("the store in the database is a copy of {0} that is not complete")]
    OtherSource(String),
    /// Both sides are the same.
    #[error("source and target are the same store")]
    Same,
    /// Something is in it.
    #[error("the store in the database is not empty")]
    NotEmpty,
    /// A server, or another copy, works with it.
    #[error("the database is in use by a server or by another copy")]
    InUse,
    /// It was written by an older program.
    #[error("the schema has version {found}, this program has {known}")]
    OlderSchema {
        /// In the database.
        found: usize,
        /// In this program.
        known: usize,
    },
    /// The database does not answer, or not as it should.
    #[error(transparent)]
    Store(#[from] Error),
}
