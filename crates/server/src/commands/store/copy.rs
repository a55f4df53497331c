//! `posthorn store copy`: makes one store equal to another.
//!
//! What is copied, and in which form, is the business of the stores (`posthorn_store::copy`). Here sides are opened, seal keys are
//! tried, and people are told what comes next.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use posthorn_store::CatalogDelta;
use posthorn_store::copy::{Progress, Reading, Report, Writing, bring};
use posthorn_store::schema::Mismatch;
use posthorn_store_postgres as postgres;
use posthorn_store_sqlite as sqlite;
use serde_json::json;

use crate::config::{self, Seal, StoreKind};
use crate::exit::{Code, Failure};
use crate::seal;
use crate::serve::ConfigArgs;
use crate::storage::{self, chain};
use crate::terminal::{self, Paint};

/// How much of a hash is shown to people.
const HASH_CHARS: usize = 16;

/// Copy a whole store into an empty one: SQLite to PostgreSQL, back, or to another of its kind
///
/// May run while the server of the source works: then the copy is as of one moment, and is not complete yet. Stop that server and
/// run the same command again: it copies what has changed since, and completes. A copy that was cut off is repeated in the
/// same way. At the end the rows of both sides are counted, hashed and compared. The source is never changed. No server
/// starts on a copy that is not complete.
///
/// Secrets are copied sealed, as they are. So the seal key of the source is needed, here to try it, and later with the copy: that of
/// the configuration (seal.key), or the file seal.key in the directory of a SQLite store.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// What to copy: sqlite:DIRECTORY, postgres://…, or config for the store of the configuration
    #[arg(long, value_name = "STORE")]
    from: Place,
    /// Where to: sqlite:DIRECTORY, postgres://…, or config
    #[arg(long, value_name = "STORE")]
    to: Place,
    /// The schema of a source in PostgreSQL, unless it is the role's default
    #[arg(long, value_name = "NAME")]
    from_schema: Option<String>,
    /// The schema of a target in PostgreSQL, unless it is the role's default
    #[arg(long, value_name = "NAME")]
    to_schema: Option<String>,
}

/// A store, as it is typed.
#[derive(Clone, Debug)]
enum Place {
    Config,
    Directory(PathBuf),
    Url(String),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "config" {
            return Ok(Self::Config);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Url(text.to_owned()));
        }
        match text.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            Some(path) => Ok(Self::Directory(path.into())),
            None => {
                Err("write sqlite:DIRECTORY, postgres://USER@HOST/DATABASE, or config".to_owned())
            }
        }
    }
}

/// A store, found.
enum Side {
    Sqlite(PathBuf),
    Postgres(Box<postgres::Options>),
}

impl Side {
    fn of(place: &Place, schema: Option<&String>, store: &config::Store) -> Self {
        match place {
            Place::Directory(path) => Self::Sqlite(path.clone()),
            Place::Url(url) => {
                let mut options = postgres::Options::new(url);
                options.schema = schema.cloned();
                Self::Postgres(Box::new(options))
            }
            Place::Config => match &store.kind {
                StoreKind::Sqlite => Self::Sqlite(store.path.clone()),
                StoreKind::Postgres(options) => {
                    let mut options = options.clone();
                    options.schema = schema.cloned().or(options.schema);
                    Self::Postgres(options)
                }
            },
        }
    }
}

/// What is copied, open.
enum Source {
    Sqlite(sqlite::CopySource, PathBuf),
    Postgres(postgres::CopySource),
}

impl Source {
    async fn open(side: Side) -> anyhow::Result<Self> {
        match side {
            Side::Sqlite(path) => {
                let source = sqlite::CopySource::open(&path).map_err(|e| in_files(e, "source"))?;
                Ok(Self::Sqlite(source, path.canonicalize()?))
            }
            Side::Postgres(options) => {
                let source = postgres::CopySource::open(&options).await;
                Ok(Self::Postgres(source.map_err(|e| in_database(&e, "source"))?))
            }
        }
    }

    /// What the target remembers of it.
    fn name(&self) -> String {
        match self {
            Self::Sqlite(_, path) => format!("sqlite:{}", path.display()),
            Self::Postgres(source) => format!("PostgreSQL ({})", source.name()),
        }
    }

    async fn is_at_rest(&self) -> anyhow::Result<bool> {
        match self {
            Self::Sqlite(source, _) => Ok(source.is_at_rest()),
            Self::Postgres(source) => {
                Ok(source.is_at_rest().await.map_err(|e| in_database(&e, "source"))?)
            }
        }
    }

    async fn catalog(&self) -> anyhow::Result<CatalogDelta> {
        match self {
            Self::Sqlite(source, _) => Ok(source.catalog().map_err(|e| in_files(e, "source"))?),
            Self::Postgres(source) => {
                Ok(source.catalog().await.map_err(|e| in_database(&e, "source"))?)
            }
        }
    }

    async fn reading(&self) -> anyhow::Result<Box<dyn Reading>> {
        match self {
            Self::Sqlite(source, _) => {
                Ok(Box::new(source.reading().map_err(|e| in_files(e, "source"))?))
            }
            Self::Postgres(source) => {
                Ok(Box::new(source.reading().await.map_err(|e| in_database(&e, "source"))?))
            }
        }
    }
}

/// Runs it.
pub(super) async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let config = config::load(&args.config.inputs())?.config;
    let (store, key) = (&config.store, config.seal);
    let from = Side::of(&args.from, args.from_schema.as_ref(), store);
    let to = Side::of(&args.to, args.to_schema.as_ref(), store);
    if let (Side::Sqlite(from), Side::Sqlite(to)) = (&from, &to)
        && from.canonicalize().ok().is_some_and(|from| to.canonicalize().ok() == Some(from))
    {
        return Err(same().into());
    }
    let source = Source::open(from).await?;
    let seal_file = try_seal(&source, &to, key, &store.path).await?;
    let was_at_rest = source.is_at_rest().await?;
    let target_name = describe(&to);
    let mut target = open_target(to, &source).await?;
    let mut reading = source.reading().await?;
    let bar = terminal::progress(0, "copying");
    let drawn = bar.clone();
    let mut tell = move |progress: Progress| {
        drawn.set_length(progress.total);
        drawn.set_position(progress.done.min(progress.total));
        let what = if progress.checking { "comparing" } else { "copying" };
        drawn.set_message(format!("{what} {}", progress.sheet));
    };
    let brought = bring(&mut *reading, &mut *target, &mut tell).await;
    drop(reading);
    bar.finish_and_clear();
    let report = brought.map_err(|e| {
        Failure::new(Code::Failure, format!("the copy stopped: {}", chain(&e)))
            .hint("put it right and run the same command again: it goes on where it stopped")
    })?;
    let differences = report.differences();
    if !differences.is_empty() {
        let message = format!("the copy differs from the source in {}", differences.join(", "));
        return Err(Failure::new(Code::Failure, message)
            .hint("the copy is not complete, and no server starts on it; run the command again")
            .into());
    }
    let complete = was_at_rest && source.is_at_rest().await?;
    if complete {
        target.complete().await?;
    }
    show(&report, complete, json)?;
    conclude(&report, complete, &target_name, seal_file.as_deref());
    Ok(())
}

fn describe(side: &Side) -> String {
    match side {
        Side::Sqlite(path) => format!("the store in {}", path.display()),
        Side::Postgres(_) => "the store in PostgreSQL".to_owned(),
    }
}

async fn open_target(side: Side, source: &Source) -> anyhow::Result<Box<dyn Writing>> {
    let name = source.name();
    match side {
        Side::Sqlite(path) => {
            let target =
                sqlite::CopyTarget::open(&path, &name).map_err(|e| in_files(e, "target"))?;
            Ok(Box::new(target))
        }
        Side::Postgres(options) => {
            let other = match source {
                Source::Postgres(source) => Some(source.name()),
                Source::Sqlite(..) => None,
            };
            let target = postgres::CopyTarget::open(&options, &name, other).await;
            Ok(Box::new(target.map_err(|e| in_database(&e, "target"))?))
        }
    }
}

/// Whether the keys that are there open what is sealed, before anything is written; the file that the copy needs, if the key is in
/// one.
async fn try_seal(
    source: &Source,
    to: &Side,
    key: Seal,
    data: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let catalog = source.catalog().await?;
    if !seal::is_anything_sealed(&catalog) {
        return Ok(None);
    }
    let given = key.key.is_some();
    let directory = match source {
        Source::Sqlite(_, path) => path,
        Source::Postgres(_) => data,
    };
    let file = key.file.clone().unwrap_or_else(|| storage::seal_file(directory));
    let former = key.former.clone();
    seal::vault(key, &file, &catalog)?;
    let Side::Sqlite(target) = to else { return Ok((!given).then_some(file)) };
    let beside = storage::seal_file(target);
    if beside.exists() && !given {
        let beside_it = Seal { key: None, former, file: None };
        seal::vault(beside_it, &beside, &catalog).map_err(|e| {
            Failure::new(Code::Config, format!("the target has another seal key: {e}"))
                .hint("use the seal key of the source on both sides")
        })?;
        return Ok(None);
    }
    Ok((!given).then_some(file))
}

fn show(report: &Report, complete: bool, json: bool) -> anyhow::Result<()> {
    if json {
        let tables = report
            .target
            .iter()
            .map(|sum| json!({"name": sum.name, "rows": sum.rows, "sha256": sum.hash}));
        let value = json!({
            "complete": complete,
            "rows_written": report.written,
            "removed": report.removed,
            "left_out": report.left_out,
            "tables": tables.collect::<Vec<_>>(),
        });
        return Ok(terminal::json(&value)?);
    }
    let row = |sum: &posthorn_store::copy::Sum| {
        let hash = sum.hash.get(..HASH_CHARS).unwrap_or_default().to_owned();
        vec![sum.name.to_owned(), sum.rows.to_string(), hash]
    };
    let rows: Vec<Vec<String>> = report.target.iter().map(row).collect();
    Ok(terminal::data(terminal::table(&["TABLE", "ROWS", "HASH (BOTH SIDES)"], &rows))?)
}

fn conclude(report: &Report, complete: bool, target: &str, seal_file: Option<&Path>) {
    let paint = Paint::stderr();
    let rows: u64 = report.target.iter().map(|sum| sum.rows).sum();
    terminal::note(format_args!(
        "{rows} rows are equal on both sides; {} were written in this run",
        report.written
    ));
    if report.left_out > 0 {
        terminal::note(paint.warn(format_args!(
            "{} rows of the source were left out: they belong to nothing, or say the same twice; \
             `posthorn check store` shows the former",
            report.left_out
        )));
    }
    if !complete {
        terminal::note(paint.warn(
            "the copy is not complete: a server still works with the source. Stop it and run the same \
             command again; it copies what has changed since",
        ));
        return;
    }
    terminal::note(paint.good(format_args!("the copy is complete: {target} can be used")));
    if let Some(file) = seal_file {
        terminal::note(format_args!(
            "its server needs the same seal key: {} (and endpoint.keys beside it, if Web Push is used)",
            file.display()
        ));
    }
    terminal::note(
        "do not start a server on the source again: what it accepts would not be in the copy",
    );
}

fn same() -> Failure {
    Failure::new(Code::Usage, "source and target are the same store")
        .hint("name another database or directory with --to")
}

fn in_files(error: sqlite::CopyError, side: &str) -> anyhow::Error {
    use sqlite::CopyError;
    let message = format!("the {side} cannot be used: {}", chain(&error));
    let failure = |code, hint: &str| Failure::new(code, message.clone()).hint(hint);
    match error {
        CopyError::NoStore(_) => {
            failure(Code::Failure, "name the directory that holds posthorn.db")
        }
        CopyError::Unfinished(_) => {
            failure(Code::Failure, "complete it first, or use what it was copied from")
        }
        CopyError::OtherSource { .. } => failure(
            Code::Failure,
            "repeat the copy with that source, or remove the directory and begin anew",
        ),
        CopyError::NotEmpty(_) => {
            failure(Code::CannotCreate, "a copy never overwrites anything; name another directory")
        }
        CopyError::OlderSchema { .. } => failure(
            Code::Config,
            "start this version of Posthorn on it once, which brings the schema up to date",
        ),
        CopyError::Open(open) => {
            let Failure { code, hint, .. } = storage::explain_open(&open);
            let failure = Failure::new(code, message);
            return match hint {
                Some(hint) => failure.hint(hint).into(),
                None => failure.into(),
            };
        }
        _ => Failure::new(Code::Failure, message),
    }
    .into()
}

fn in_database(error: &postgres::CopyError, side: &str) -> anyhow::Error {
    use postgres::CopyError;
    let message = format!("the {side} cannot be used: {}", chain(error));
    let failure = |code, hint: &str| Failure::new(code, message.clone()).hint(hint);
    if let CopyError::Store(store) = error
        && let Some(mismatch) = Mismatch::behind(store)
    {
        return failure(Code::Config, &mismatch.advice()).into();
    }
    match error {
        CopyError::NoStore => failure(Code::Failure, "check the URL, and the schema"),
        CopyError::Unfinished => {
            failure(Code::Failure, "complete it first, or use what it was copied from")
        }
        CopyError::OtherSource(_) => failure(
            Code::Failure,
            "repeat the copy with that source, or drop the database and begin anew",
        ),
        CopyError::Same => same(),
        CopyError::NotEmpty => {
            failure(Code::CannotCreate, "a copy never overwrites anything; name an empty database")
        }
        CopyError::InUse => failure(Code::InUse, "stop the server or the other copy first"),
        CopyError::OlderSchema { .. } => failure(
            Code::Config,
            "start this version of Posthorn on it once, which brings the schema up to date",
        ),
        CopyError::Store(e) if e.is_transient() => {
            failure(Code::Unavailable, "start PostgreSQL, or correct the URL")
        }
        _ => failure(
            Code::Config,
            "check the URL: user, password, database, and the permissions of the role",
        ),
    }
    .into()
}
