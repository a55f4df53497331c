//! `posthorn backup`: a copy of the SQLite store as of one moment.

use std::path::PathBuf;

use crate::config::{self, StoreKind};
use crate::exit::{Code, Failure};
use crate::serve::ConfigArgs;
use crate::storage;
use crate::terminal::{self, Paint};

/// Copy the SQLite store to a new file, also while the server runs
///
/// The copy is complete as of one moment. To restore, put it into an empty data directory as
/// posthorn.db, together with the seal key. The seal key is not part of the copy.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

/// Runs it.
pub async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let config = config::load(&args.config.inputs())?.config;
    if let StoreKind::Postgres(_) = config.store.kind {
        return Err(Failure::new(Code::Usage, "the store is in PostgreSQL")
            .hint("use the database's own tools, such as pg_dump or continuous archiving")
            .into());
    }
    let bar = terminal::progress(0, "copying");
    let drawn = bar.clone();
    storage::backup(&config.store.path, &args.to, move |done, total| {
        drawn.set_length(total);
        drawn.set_position(done);
    })
    .await?;
    bar.finish_and_clear();
    let bytes = std::fs::metadata(&args.to)?.len();
    if json {
        let value = serde_json::json!({"file": args.to, "bytes": bytes});
        terminal::json(&value)?;
    } else {
        terminal::data(format_args!("{} {bytes} bytes", args.to.display()))?;
    }
    if config.seal.key.is_none() {
        terminal::note(Paint::stderr().warn(format_args!(
            "the seal key {} is not part of the backup; back it up separately",
            storage::seal_file(&config.store.path).display()
        )));
    }
    Ok(())
}
