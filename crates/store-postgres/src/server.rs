//! What the server at the other end must be, found out before anything is done with it.
//!
//! # What is relied on
//! | state of a session | for | through a pooler that shares sessions |
//! |---|---|---|
//! | settings | one plan whatever the sizes; warnings arrive | must be those of the role |
//! | prepared statements | every statement | PgBouncer 1.21 or newer keeps them |
//! | an advisory lock for as long as the session lasts | a slot of the tally of its own | slot 0, for all together |
//! | `LISTEN` | hints between nodes | has an address of its own (`listen_url`) |
//!
//! Transactions need nothing of a session: their locks are theirs, and what they set is `set local`. There are no
//! temporary tables.
//!
//! Databases that only look like PostgreSQL may accept an advisory lock and hold nothing. Then lanes lose their order and
//! shards have two owners, and nothing says so. So it is tried, with two sessions.

use std::time::Duration;

use posthorn_store::{Error, Result};
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{Client, SimpleQueryMessage};
use tracing::warn;

use crate::connect::Connector;
use crate::lock;
use crate::options::{Options, SETTINGS, quoted};

/// The oldest server whose features are enough.
const SERVER_MIN: i32 = 140_000;
/// What engines call themselves whose advisory locks are silent or missing.
const STRANGERS: [(&str, &str); 3] =
    [("CockroachDB", "CockroachDB"), ("YugabyteDB", "-YB-"), ("YugabyteDB", "Yugabyte")];
/// How often two sessions are mixed before they are believed to be two.
const MIXES: u32 = 4;
const CONTEXT: &str = "use the database";

/// Values of `synchronous_commit` with which an answer to a commit is no promise: of those, `local` does not wait for a standby.
const DOES_NOT_WAIT: [&str; 2] = ["off", "local"];

/// How connections relate to sessions of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// Each has one of its own.
    None,
    /// Each transaction gets any.
    Transaction,
}

/// Looks whether the server is one to work with.
pub(crate) async fn check(connector: &Connector, options: &Options) -> Result<Pooling> {
    let patience = options.connect_timeout + options.answer_timeout();
    let looked = timeout(patience, async {
        let (one, two) = (client(connector, options).await?, client(connector, options).await?);
        check_version(&one).await?;
        check_durability(&one).await?;
        if !locks_hold(&one, &two).await? {
            return Err(Error::fatal(CONTEXT, NO_LOCKS));
        }
        match shares_sessions(&one, &two).await? {
            false => Ok(Pooling::None),
            true => check_pooler(&one, &two, options).await,
        }
    });
    looked.await.unwrap_or_else(|late| Err(Error::unavailable(CONTEXT, late)))
}

const NO_LOCKS: &str = "two sessions got the same advisory lock: this server does not keep them, and order and \
                        ownership depend on them; PostgreSQL 14 or newer is needed";

/// A connection; that the server does not let us in or does not know the database is a mistake, against which waiting
/// does not help.
pub(crate) async fn client(connector: &Connector, options: &Options) -> Result<Client> {
    let made = timeout(options.connect_timeout, connector.client()).await;
    let made = made.map_err(|late| Error::unavailable("connect to the database", late))?;
    made.map_err(|error| {
        let code = error.code().map(|state| state.code().to_owned()).unwrap_or_default();
        match code.starts_with("28") || code == "3D000" {
            true => Error::fatal("connect to the database", error),
            false => Error::unavailable("connect to the database", error),
        }
    })
}

fn failed(error: tokio_postgres::Error) -> Error {
    Error::unavailable(CONTEXT, error)
}

/// The first column of the first row. Prepares nothing, which not every pooler would survive.
pub(crate) async fn ask(client: &Client, text: &str) -> Result<String> {
    Ok(ask_all(client, text).await?.into_iter().next().unwrap_or_default())
}

/// The first column of all rows.
async fn ask_all(client: &Client, text: &str) -> Result<Vec<String>> {
    let answer = client.simple_query(text).await.map_err(failed)?;
    let cells = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(cells.collect())
}

/// What the server calls itself, when it is new enough and PostgreSQL.
pub(crate) async fn check_version(client: &Client) -> Result<String> {
    let name = ask(client, "select version()").await?;
    refuse_stranger(&name)?;
    let version = ask(client, "show server_version_num").await?;
    let version: i32 = version.parse().unwrap_or(0);
    if version < SERVER_MIN {
        let text = format!("PostgreSQL 14 or newer is needed, the server is {}", version / 10_000);
        return Err(Error::fatal(CONTEXT, text));
    }
    Ok(name)
}

fn refuse_stranger(name: &str) -> Result<()> {
    match STRANGERS.iter().find(|(_, sign)| name.contains(sign)) {
        None => Ok(()),
        Some((engine, _)) => Err(Error::fatal(
            CONTEXT,
            format!(
                "the server is {engine}, which does not keep advisory locks as PostgreSQL does, and order and \
                 ownership depend on them; PostgreSQL 14 or newer is needed"
            ),
        )),
    }
}

async fn check_durability(client: &Client) -> Result<()> {
    // A role may be told to commit without waiting; sessions overrule that, where they may. It is tried for one
    // transaction only: a session that a pooler shares would stay changed, and hide what the role says.
    let waits = |value: &str| !DOES_NOT_WAIT.contains(&value);
    if !waits(&ask(client, "show synchronous_commit").await?) {
        begin(client).await?;
        let set = "set local synchronous_commit = on; show synchronous_commit";
        let overruled = ask(client, set).await;
        end(client).await?;
        if !waits(&overruled?) {
            let text = "synchronous_commit is off and cannot be set to on for this session";
            return Err(Error::fatal(CONTEXT, text));
        }
    }
    if ask(client, "show fsync").await? == "off" {
        warn!("The database runs with fsync = off: what it acknowledges can be lost in a crash");
    }
    Ok(())
}

/// Whether a lock that one session has is not to be had by another.
pub(crate) async fn locks_hold(one: &Client, two: &Client) -> Result<bool> {
    let pid = begin(one).await?;
    begin(two).await?;
    let take = format!("select pg_try_advisory_xact_lock({}, {pid})", lock::TRIAL);
    let (first, second) = (ask(one, &take).await, ask(two, &take).await);
    // Also after a refusal, so that something else can be asked.
    end(one).await?;
    end(two).await?;
    Ok(first? == "t" && second? == "f")
}

/// Begins a transaction; who serves it.
async fn begin(client: &Client) -> Result<String> {
    client.batch_execute("begin").await.map_err(failed)?;
    ask(client, "select pg_backend_pid()").await
}

async fn end(client: &Client) -> Result<()> {
    client.batch_execute("rollback").await.map_err(failed)
}

/// Whether the transactions of one connection are served by several sessions. A pooler that shares them gives one back
/// and takes the one that was given back last, or longest ago: both are tried.
async fn shares_sessions(one: &Client, two: &Client) -> Result<bool> {
    let first = begin(one).await?;
    begin(two).await?;
    end(one).await?;
    end(two).await?;
    for _ in 0..MIXES {
        let now = begin(one).await?;
        end(one).await?;
        if now != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn check_pooler(one: &Client, two: &Client, options: &Options) -> Result<Pooling> {
    let refused = |text: String| Err(Error::fatal(CONTEXT, text));
    if options.listen_url.is_none() {
        return refused(
            "store.url leads through a pooler that shares sessions (PgBouncer with pool_mode = transaction), where \
             nobody can listen for hints: set pool_mode = session, or set store.listen_url to an address of the \
             database itself"
                .to_owned(),
        );
    }
    if !keeps_statements(one, two).await? {
        return refused(
            "the pooler at store.url shares sessions and forgets prepared statements: PgBouncer 1.21 or newer with \
             max_prepared_statements above 0 is needed for pool_mode = transaction; or set pool_mode = session"
                .to_owned(),
        );
    }
    let mut missing = Vec::new();
    for (name, wanted) in SETTINGS.iter().chain(&[("posthorn.slot", "0")]) {
        let shown = ask(one, &format!("select current_setting('{name}', true)")).await?;
        if shown != *wanted {
            missing.push(format!("alter role CURRENT_ROLE set {name} = '{wanted}';"));
        }
    }
    // What the session began with as well: somebody who shares it may have set something else.
    let text = "select current_setting('synchronous_commit') union all \
                select reset_val from pg_settings where name = 'synchronous_commit'";
    if ask_all(one, text).await?.iter().any(|value| DOES_NOT_WAIT.contains(&value.as_str())) {
        missing.push("alter role CURRENT_ROLE set synchronous_commit = 'on';".to_owned());
    }
    if let Some(schema) = &options.schema {
        let shown = ask(one, "show search_path").await?;
        if shown.trim_matches('"') != schema {
            missing.push(format!("alter role CURRENT_ROLE set search_path = {};", quoted(schema)));
        }
    }
    if !missing.is_empty() {
        return refused(format!(
            "the pooler at store.url shares sessions, so they cannot be set up one by one: the role needs these \
             settings, given to it at the database itself, and the pooler then needs new connections: {}",
            missing.join(" ")
        ));
    }
    Ok(Pooling::Transaction)
}

/// Whether a statement that was prepared on one session can be used on another. An answer of the database that says no is
/// a no, also when it refuses to prepare one: a pooler that forgets them leaves them behind, and there is one of that name.
async fn keeps_statements(one: &Client, two: &Client) -> Result<bool> {
    let home = begin(one).await?;
    let prepared = one.prepare("select 1").await;
    end(one).await?;
    let statement = match prepared {
        Ok(statement) => statement,
        Err(error) => return no_or_outage(error),
    };
    for _ in 0..MIXES {
        // Whoever serves this one is not there for the other.
        begin(two).await?;
        let other = begin(one).await?;
        let used = one.query(&statement, &[]).await;
        end(one).await?;
        end(two).await?;
        match used {
            Err(error) => return no_or_outage(error),
            Ok(_) if other != home => return Ok(true),
            Ok(_) => {}
        }
    }
    Ok(true)
}

/// What the database itself said is a no; that it said nothing, or that it is gone, is an outage.
fn no_or_outage(error: tokio_postgres::Error) -> Result<bool> {
    let severity = error.as_db_error().map(DbError::parsed_severity);
    match severity {
        None | Some(Some(Severity::Fatal | Severity::Panic)) => Err(failed(error)),
        Some(_) => Ok(false),
    }
}

/// How long somebody who only wants to know waits for a connection.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_are_not_postgresql_are_refused_by_name() {
        let names = [
            "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)",
            "PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64-pc-linux-gnu, compiled by clang",
            "PostgreSQL 15.2-YB-2024.2 (Yugabyte)",
        ];
        for name in names {
            let error = refuse_stranger(name).expect_err(name);
            assert!(format!("{error:?}").contains("advisory locks"), "{error:?}");
        }
        refuse_stranger("PostgreSQL 15.18 (Debian 15.18-0+deb12u1)").expect("it is one");
    }
}
