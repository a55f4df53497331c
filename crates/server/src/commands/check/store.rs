//! `posthorn check store`: looks for damage in what is stored, and changes nothing.

use posthorn_store_postgres as postgres;
use posthorn_store_sqlite::{Depth, check_file};
use serde_json::json;

use crate::config::{self, StoreKind};
use crate::exit::{Code, Failure};
use crate::serve::ConfigArgs;
use crate::storage::{RESTORE, chain};
use crate::terminal::{self, Paint};

/// Look for damage in what is stored; nothing is changed, and a server may go on working
///
/// SQLite: every page is read, tables are compared with their indexes, and rows with what they belong
/// to. PostgreSQL: every row is read, and every index is compared with its table where the extension
/// amcheck is installed and the role may use it. Exit code 0: sound; 65: damaged; anything else: it
/// could not be checked.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Do not compare tables with their indexes: several times faster on a large store
    #[arg(long)]
    quick: bool,
}

/// What a check found, whatever the store.
struct Report {
    place: String,
    /// What was looked at, for people.
    scope: String,
    findings: Vec<String>,
}

pub(super) async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let config = config::load(&args.config.inputs())?.config;
    let report = match &config.store.kind {
        StoreKind::Sqlite => sqlite(&config.store, args.quick).await?,
        StoreKind::Postgres(options) => in_postgres(options, args.quick).await?,
    };
    let Report { place, scope, findings } = report;
    let sound = findings.is_empty();
    if json {
        terminal::json(&json!({"sound": sound, "checked": scope, "findings": findings}))?;
    } else {
        for finding in &findings {
            terminal::data(finding)?;
        }
    }
    if sound {
        let text = format!("{place} is sound: {scope}");
        terminal::note(Paint::stderr().good(text));
        return Ok(());
    }
    let message = format!("{place} is damaged: {} findings in {scope}", findings.len());
    Err(Failure::new(Code::Damaged, message).hint(RESTORE).into())
}

async fn sqlite(store: &config::Store, quick: bool) -> anyhow::Result<Report> {
    let data = store.path.clone();
    if !data.join("posthorn.db").exists() {
        let message = format!("there is no store in {}", data.display());
        let hint = "name the data directory with --data, or the configuration with --config";
        return Err(Failure::new(Code::Failure, message).hint(hint).into());
    }
    let depth = if quick { Depth::Quick } else { Depth::Full };
    let bar = terminal::spinner("reading every page");
    let looked = data.clone();
    let damage = tokio::task::spawn_blocking(move || check_file(&looked, depth)).await?;
    bar.finish_and_clear();
    let damage = damage.map_err(|e| Failure::new(Code::Io, chain(&e)))?;
    let place = format!("the store in {}", data.display());
    Ok(Report { place, scope: format!("{} pages", damage.pages), findings: damage.findings })
}

async fn in_postgres(options: &postgres::Options, quick: bool) -> anyhow::Result<Report> {
    let bar = terminal::spinner("reading every row");
    let checked = postgres::check(options, quick).await;
    bar.finish_and_clear();
    let postgres::Checked { tables, rows, indexes, findings } = checked.map_err(|e| {
        Failure::new(Code::Unavailable, format!("PostgreSQL could not be checked: {}", chain(&e)))
            .hint("check store.url, and that the role may read the tables")
    })?;
    let indexes = match indexes {
        Some(count) => format!("{count} indexes compared with their tables"),
        None if quick => "indexes not compared (--quick)".to_owned(),
        None => "indexes not compared, since amcheck is not installed or not for this role \
                 (create extension amcheck)"
            .to_owned(),
    };
    let scope = format!("{rows} rows of {tables} tables, {indexes}");
    Ok(Report { place: "the store in PostgreSQL".to_owned(), scope, findings })
}
