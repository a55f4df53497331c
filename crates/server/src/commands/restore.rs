//! `posthorn restore`: a backup becomes a store again. `posthorn resume`: and then its server may send.

use std::path::{Path, PathBuf};

use posthorn_domain::Timestamp;
use posthorn_store_sqlite::{self as sqlite, Backup, Contents, RestoreError};
use serde_json::json;

use super::Context;
use crate::config;
use crate::exit::{Code, Failure};
use crate::seal;
use crate::serve::ConfigArgs;
use crate::storage::{self, RESTORE, chain};
use crate::terminal::{self, Paint};

/// Check a backup of a SQLite store and put it into a directory that has none
///
/// The whole file is checked before anything is written: that it is sound, that this version of Posthorn can read it, and that
/// the seal key opens its secrets. A store that is there is never overwritten. To look at what was restored before any receiver
/// hears of it, start the server with `posthorn serve --hold`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The file that `posthorn backup` wrote
    file: PathBuf,
    /// The directory; the data directory (store.path) when not given
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
    /// Only check, and say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let config = config::load(&args.config.inputs())?.config;
    let to = args.to.clone().unwrap_or_else(|| config.store.path.clone());
    let target = to.join("posthorn.db");
    if std::fs::metadata(&target).is_ok_and(|found| found.len() > 0) {
        return Err(explain(&RestoreError::Exists(target)).into());
    }
    let bar = terminal::spinner("checking the backup");
    let file = args.file.clone();
    let looked = tokio::task::spawn_blocking(move || sqlite::look(&file)).await?;
    bar.finish_and_clear();
    let backup = looked.map_err(|e| explain(&e))?;
    let key = try_seal(config.seal, &to, backup.contents.as_ref())?;
    tell(args, &to, &backup, key.as_deref());
    if !args.dry_run {
        write(&args.file, &to).await?;
    }
    let Backup { schema, contents, bytes, .. } = &backup;
    let contents = contents.as_ref();
    if json {
        terminal::json(&json!({
            "file": args.file, "directory": to, "bytes": bytes, "schema": schema.0,
            "events": contents.map(|contents| contents.events),
            "pending": contents.map(|contents| contents.pending), "restored": !args.dry_run,
        }))?;
    } else if !args.dry_run {
        terminal::data(format_args!("{} {bytes} bytes", target.display()))?;
    }
    let paint = Paint::stderr();
    match args.dry_run {
        true => terminal::note(paint.good("the backup is sound; nothing was written (--dry-run)")),
        false => {
            let next = format!("posthorn serve --hold --data {}", to.display());
            terminal::note(paint.good("restored"));
            terminal::note(format_args!(
                "`{next}` starts without sending anything; `posthorn resume` lets it send"
            ));
        }
    }
    Ok(())
}

async fn write(file: &Path, to: &Path) -> anyhow::Result<()> {
    let bar = terminal::progress(0, "restoring");
    let (drawn, file, to) = (bar.clone(), file.to_owned(), to.to_owned());
    let restore = move || {
        sqlite::restore(&file, &to, |progress| {
            drawn.set_length(progress.total);
            drawn.set_position(progress.done);
        })
    };
    let restored = tokio::task::spawn_blocking(restore).await?;
    bar.finish_and_clear();
    Ok(restored.map_err(|e| explain(&e))?)
}

/// Whether the key that a server would use opens what is sealed; the file of a key that is still to be put there. Of a backup
/// whose contents are not known nothing can be tried.
fn try_seal(
    key: config::Seal,
    to: &Path,
    contents: Option<&Contents>,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(Contents { catalog, .. }) = contents else { return Ok(None) };
    if !seal::is_anything_sealed(catalog) {
        return Ok(None);
    }
    let file = key.file.clone().unwrap_or_else(|| storage::seal_file(to));
    if key.key.is_none() && !file.exists() {
        return Ok(Some(file));
    }
    seal::vault(key, &file, catalog)?;
    Ok(None)
}

/// What will be done.
fn tell(args: &Args, to: &Path, backup: &Backup, key: Option<&Path>) {
    let Backup { schema: (schema, known), contents, bytes, .. } = backup;
    let paint = Paint::stderr();
    terminal::note(format_args!(
        "{} is sound: {bytes} bytes, schema version {schema}",
        args.file.display()
    ));
    if let Some(Contents { events, pending, last_event_at, .. }) = contents {
        let last = last_event_at.map(Timestamp::from_millis);
        let last = last.map_or_else(String::new, |at| format!(", the last of {at}"));
        terminal::note(format_args!(
            "{events} events{last}; {pending} deliveries have not ended and will be sent"
        ));
    } else {
        terminal::note(format_args!(
            "its schema is older than that of this Posthorn ({known}); the start brings it up to date"
        ));
        terminal::note(paint.warn(
            "so the seal key could not be tried: have that of then ready, or its secrets cannot be read",
        ));
    }
    if let Some(file) = key {
        terminal::note(paint.warn(format_args!(
            "its secrets need the seal key of then: put it into {} before the start, or set seal.key; it could not be tried",
            file.display()
        )));
    }
    terminal::note(format_args!("it becomes the store in {}", to.display()));
}

fn explain(error: &RestoreError) -> Failure {
    let message = chain(error);
    match error {
        RestoreError::Unreadable(..) => {
            Failure::new(Code::Failure, message).hint("name a file that `posthorn backup` wrote")
        }
        RestoreError::NoStore(_) | RestoreError::HalfCopied(_) => {
            Failure::new(Code::Failure, message).hint("name another file")
        }
        RestoreError::Live { .. } => Failure::new(Code::Failure, message)
            .hint("make a backup of it with `posthorn backup`, and restore that"),
        RestoreError::Damaged(_) => Failure::new(Code::Damaged, message).hint("use another backup"),
        RestoreError::Exists(_) => Failure::new(Code::CannotCreate, message)
            .hint("nothing is overwritten: move the directory away, or name another one with --to"),
        RestoreError::Open(open) => {
            let mut failure = storage::explain_open(open);
            if failure.hint.as_deref() == Some(RESTORE) {
                failure.hint = Some("use another backup".to_owned());
            }
            failure
        }
        RestoreError::Write(..) => {
            Failure::new(Code::Io, message).hint("check the space and the permissions")
        }
        _ => Failure::new(Code::Failure, message),
    }
}

/// Lets a server that is on hold send.
pub async fn resume(context: &Context) -> anyhow::Result<()> {
    let answer = context.client.post("/v1/resume", &json!({})).await?;
    if context.json {
        return Ok(terminal::json(&answer)?);
    }
    let was_on_hold = answer["was_on_hold"] == true;
    let text = if was_on_hold {
        "resumed: what is due is sent from now on"
    } else {
        "the server was not on hold"
    };
    terminal::note(text);
    Ok(())
}
