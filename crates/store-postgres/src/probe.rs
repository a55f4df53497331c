//! Trying every statement on a database, without leaving anything there.
//!
//! All migrations run in a schema that is made for it and removed at the end, and then every statement that this store
//! ever sends is prepared there. What the database refuses is a result, not an error.

use posthorn_store::{Error, Result};
use tokio_postgres::Client;

use crate::connect::Connector;
use crate::migrate::{MIGRATIONS, SCHEMA};
use crate::options::{Options, quoted};
use crate::server::{self, LOOK_TIMEOUT};
use crate::{log, sql};

/// What a database said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// What it calls itself.
    pub server: String,
    /// How many migrations and statements were tried.
    pub tried: usize,
    /// What it refused, and why, in its own words.
    pub refused: Vec<Refused>,
}

/// Something that a database does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What was tried.
    pub what: String,
    /// What the database said.
    pub problem: String,
}

/// Tries everything. Fails only when the database cannot be asked at all, or no schema can be made.
pub async fn probe(options: &Options) -> Result<Probed> {
    let options = &Options { connect_timeout: LOOK_TIMEOUT, ..options.clone() };
    let (config, tls) = options.parse()?;
    let connector = Connector::new(&config, tls);
    let one = server::client(&connector, options).await?;
    let two = server::client(&connector, options).await?;
    let mut probed =
        Probed { server: server::ask(&one, "select version()").await?, ..Probed::default() };
    probed.note("the version of the server", server::check_version(&one).await.map(drop));
    let locks = match server::locks_hold(&one, &two).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::fatal("use", "two sessions got the same lock")),
        Err(error) => Err(error),
    };
    probed.note("advisory locks", locks);
    let schema = format!("posthorn_probe_{}", server::ask(&one, "select pg_backend_pid()").await?);
    let failed = |error| Error::unavailable("make a schema for the trial", error);
    let create = format!("create schema {0}; set search_path = {0}", quoted(&schema));
    one.batch_execute(&create).await.map_err(failed)?;
    let tried = try_all(&one, options, &mut probed).await;
    let drop = format!("rollback; drop schema {} cascade", quoted(&schema));
    one.batch_execute(&drop).await.map_err(|error| {
        Error::unavailable("remove the schema that was made for the trial", error)
    })?;
    tried.map(|()| probed)
}

/// Every statement with its name, also those that are put together at run time.
pub(crate) fn statements() -> Vec<(String, String)> {
    let fixed = sql::ALL.iter().map(|(name, text)| ((*name).to_owned(), whole(text)));
    fixed.chain(log::statements()).collect()
}

/// A statement on a day, on the partitions that are always there.
fn whole(text: &str) -> String {
    let places = [
        ("{candidate}", sql::PRUNE_OLD),
        ("{partition}", "event_rest"),
        ("{event}", "event_rest"),
        ("{done}", "delivery_done_rest"),
    ];
    places.iter().fold(text.to_owned(), |text, (place, name)| text.replace(place, name))
}

async fn try_all(client: &Client, options: &Options, probed: &mut Probed) -> Result<()> {
    for (index, migration) in MIGRATIONS.iter().enumerate() {
        let done = client.batch_execute(migration.text()).await;
        probed.note_answer(&format!("migration {}", index + 1), done)?;
    }
    let session = options.session(SCHEMA.known());
    let set = client.batch_execute(&format!("begin; {session} rollback")).await;
    probed.note_answer("the settings of a session", set)?;
    drop(client.batch_execute("rollback").await);
    for (name, text) in statements() {
        let prepared = client.prepare(&text).await.map(drop);
        probed.note_answer(&format!("statement {name}"), prepared)?;
    }
    Ok(())
}

impl Probed {
    fn note(&mut self, what: &str, result: Result<()>) {
        self.tried += 1;
        if let Err(error) = result {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let problem = cause.unwrap_or_else(|| error.to_string());
            self.refused.push(Refused { what: what.to_owned(), problem });
        }
    }

    /// An answer of the database is a result; without one nothing can be said.
    fn note_answer(
        &mut self,
        what: &str,
        result: std::result::Result<(), tokio_postgres::Error>,
    ) -> Result<()> {
        self.tried += 1;
        let Err(error) = result else { return Ok(()) };
        let Some(said) = error.as_db_error() else {
            return Err(Error::unavailable("ask the database", error));
        };
        let problem = format!("{}: {}", said.code().code(), said.message());
        self.refused.push(Refused { what: what.to_owned(), problem });
        Ok(())
    }
}
