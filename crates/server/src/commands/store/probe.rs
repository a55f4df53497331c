//! `posthorn store probe`: which of our statements does a database refuse?

use posthorn_store_postgres as postgres;
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::storage::chain;
use crate::terminal::{self, Paint};

/// Try every statement on a PostgreSQL, or on a database that speaks like one
///
/// All migrations run in a schema that is made for it and removed at the end; every statement is prepared there, and two
/// sessions try whether locks hold. The role must be allowed to create schemas. What the database refuses is listed with
/// its own words. Exit code 0: nothing was refused; 1: something was; 69: the database could not be asked.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where the database is: postgres://user:password@host/database
    #[arg(long, env = "POSTHORN_PROBE_URL", hide_env_values = true)]
    url: String,
}

pub(super) async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let is_postgres =
        ["postgres://", "postgresql://"].iter().any(|scheme| args.url.starts_with(scheme));
    if !is_postgres {
        // The text is not repeated: it may hold a password.
        let message = "--url must begin with postgres:// or postgresql://";
        return Err(Failure::new(Code::Usage, message).into());
    }
    let bar = terminal::spinner("trying every statement");
    let probed = postgres::probe(&postgres::Options::new(&args.url)).await;
    bar.finish_and_clear();
    let probed = probed.map_err(|e| {
        Failure::new(Code::Unavailable, format!("the database could not be tried: {}", chain(&e)))
            .hint("check --url, and that the role may create a schema in the database")
    })?;
    let postgres::Probed { server, tried, refused } = probed;
    if json {
        let refused: Vec<_> = refused
            .iter()
            .map(|refused| json!({"what": refused.what, "problem": refused.problem}))
            .collect();
        terminal::json(&json!({"server": server, "tried": tried, "refused": refused}))?;
    } else {
        for postgres::Refused { what, problem } in &refused {
            terminal::data(terminal::clean(&format!("{what}: {problem}")))?;
        }
    }
    if refused.is_empty() {
        let text = format!("nothing was refused: {tried} tries on {server}");
        terminal::note(Paint::stderr().good(terminal::clean(&text)));
        return Ok(());
    }
    let message = format!("{} of {tried} were refused by {server}", refused.len());
    Err(Failure::new(Code::Failure, terminal::clean(&message))
        .hint("Posthorn cannot work with this database")
        .into())
}
