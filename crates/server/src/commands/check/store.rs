//! `posthorn check store`: looks for damage in what is stored and for rows that do not fit together. Nothing is changed,
//! unless somebody wants a repair.

use posthorn_store::Inconsistency;
use posthorn_store_postgres as postgres;
use posthorn_store_sqlite::{self as files, Depth, check_file};
use serde_json::json;

use crate::config::{self, StoreKind};
use crate::exit::{Code, Failure};
use crate::serve::ConfigArgs;
use crate::storage::{RESTORE, chain, explain_open};
use crate::terminal::{self, Paint};

/// Look for damage in what is stored; nothing is changed, and a server may go on working
///
/// SQLite: every page is read, tables are compared with their indexes, and rows with what they belong
/// to. PostgreSQL: every row is read, and every index is compared with its table where the extension
/// amcheck is installed and the role may use it. Then rows are compared with each other: deliveries without
/// their event or subscription, attempts without their delivery, lanes without a head, counts that a recount
/// does not give. Exit code 0: sound; 65: damaged; anything else: it could not be checked.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Do not compare tables with their indexes: several times faster on a large store
    #[arg(long)]
    quick: bool,
    /// Put right what is safe: recount, remove what belongs to nothing, let lanes go on; no server may run
    #[arg(long, conflicts_with = "quick")]
    repair: bool,
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
    let unfit = match (findings.is_empty() && !args.quick, args.repair) {
        // Of what is damaged nobody knows what would fit.
        (false, _) => Vec::new(),
        (true, false) => compare(&config.store).await?,
        (true, true) => repair(&config.store).await?,
    };
    let left: Vec<&Inconsistency> =
        unfit.iter().filter(|unfit| !(args.repair && unfit.repairable)).collect();
    let sound = findings.is_empty() && left.is_empty();
    if json {
        let shown = |unfit: &Inconsistency| {
            let repaired = args.repair && unfit.repairable;
            let Inconsistency { what, rows, repairable } = unfit;
            json!({"what": what, "rows": rows, "repairable": repairable, "repaired": repaired})
        };
        let unfit: Vec<_> = unfit.iter().map(shown).collect();
        let value = json!({
            "sound": sound, "checked": scope, "findings": findings, "inconsistencies": unfit,
        });
        terminal::json(&value)?;
    } else {
        for finding in &findings {
            terminal::data(finding)?;
        }
        for Inconsistency { what, rows, repairable } in &unfit {
            let done = if args.repair && *repairable { " (repaired)" } else { "" };
            terminal::data(format_args!("{rows} {what}{done}"))?;
        }
    }
    if !left.is_empty() {
        let rows: u64 = left.iter().map(|unfit| unfit.rows).sum();
        let message = format!("{place} does not fit together: {rows} findings");
        let hint = match left.iter().any(|unfit| unfit.repairable) {
            true => {
                "stop the server and run `posthorn check store --repair`, which puts right what is safe"
            }
            false => "restore a backup, or keep the store as it is: these rows are not used",
        };
        return Err(Failure::new(Code::Damaged, message).hint(hint).into());
    }
    if sound {
        let text = format!("{place} is sound: {scope}");
        terminal::note(Paint::stderr().good(text));
        return Ok(());
    }
    let message = format!("{place} is damaged: {} findings in {scope}", findings.len());
    Err(Failure::new(Code::Damaged, message).hint(RESTORE).into())
}

async fn compare(store: &config::Store) -> anyhow::Result<Vec<Inconsistency>> {
    let bar = terminal::spinner("comparing rows");
    let found = match &store.kind {
        StoreKind::Sqlite => {
            let data = store.path.clone();
            let found = tokio::task::spawn_blocking(move || files::inconsistencies(&data)).await?;
            found.map_err(|e| explain_open(&e))?
        }
        StoreKind::Postgres(options) => {
            postgres::inconsistencies(options).await.map_err(|e| unanswered(&e))?
        }
    };
    bar.finish_and_clear();
    Ok(found)
}

async fn repair(store: &config::Store) -> anyhow::Result<Vec<Inconsistency>> {
    let bar = terminal::spinner("comparing and repairing rows");
    let found = match &store.kind {
        StoreKind::Sqlite => {
            let data = store.path.clone();
            let found = tokio::task::spawn_blocking(move || files::repair(&data)).await?;
            found.map_err(|e| explain_open(&e))?
        }
        StoreKind::Postgres(options) => {
            postgres::repair(options).await.map_err(|e| unanswered(&e))?
        }
    };
    bar.finish_and_clear();
    Ok(found)
}

fn unanswered(error: &posthorn_store::Error) -> Failure {
    let message = format!("PostgreSQL could not be checked: {}", chain(error));
    Failure::new(Code::Unavailable, message)
        .hint("check store.url and the role's permissions; before a repair, stop all servers")
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
