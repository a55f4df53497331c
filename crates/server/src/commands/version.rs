//! `posthorn version`: which build this is, and which schemas it writes. Needs no server.

use serde_json::{Value, json};

use crate::terminal;

/// The commit that the program was built from, where whoever built it said so. It comes from the environment of the
/// build and not from a repository, so that the same source always gives the same program.
const COMMIT: Option<&str> = option_env!("POSTHORN_COMMIT");

/// Show the version, the commit it was built from, and the schema version of each store
///
/// Where two versions have the same numbers, you can go back from one to the other. Where they differ, you can when the
/// newer one has only added to the schema, which the changelog says; a server refuses a store that it cannot work with.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args, json: bool) -> anyhow::Result<()> {
    if json {
        return Ok(terminal::json(&as_json())?);
    }
    let (sqlite, postgres) = schemas();
    terminal::data(format_args!(
        "posthorn {}\ncommit {}\ntarget {}\nschema of SQLite {sqlite}, of PostgreSQL {postgres}",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("unknown"),
        target(),
    ))?;
    Ok(())
}

fn as_json() -> Value {
    let (sqlite, postgres) = schemas();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": COMMIT,
        "target": target(),
        "static": cfg!(target_feature = "crt-static"),
        "stores": {"sqlite": {"schema": sqlite}, "postgres": {"schema": postgres}},
    })
}

fn schemas() -> (usize, usize) {
    (posthorn_store_sqlite::SCHEMA_VERSION, posthorn_store_postgres::SCHEMA_VERSION)
}

/// What it runs on, as Rust names targets, without the vendor.
fn target() -> String {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-{}-{libc}", std::env::consts::ARCH, std::env::consts::OS)
}
