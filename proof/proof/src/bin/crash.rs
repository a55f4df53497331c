//! `crash`: kills the real server again and again, and proves that nothing was lost.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use posthorn_proof::crash::cluster::StoreKind;
use posthorn_proof::crash::evidence::Evidence;
use posthorn_proof::crash::summary::Summary;
use posthorn_proof::crash::{checker, disk, run};
use posthorn_testkit::patroni::Patroni;
use tokio::signal::unix::{SignalKind, signal};

/// What a cycle may take at most, whatever happens.
const CYCLE_MAX: Duration = Duration::from_secs(60);
/// The same where a cycle may have to wait for a machine that copies the whole database.
const UPHEAVAL_MAX: Duration = Duration::from_secs(240);
/// What start and end may take at most.
const REST_MAX: Duration = Duration::from_secs(600);

/// Kill the server again and again under load, and check that nothing is lost, invented or reordered
///
/// Ends with 0 when every promise held, 1 when one was broken, 2 when it could not be found out.
#[derive(Parser, Debug)]
#[command(name = "crash", version)]
struct Args {
    /// The store to test
    #[arg(long, value_enum, default_value = "sqlite")]
    store: StoreKind,
    /// Faults, one after the other
    #[arg(long, default_value_t = 20)]
    cycles: u64,
    /// Begin with this one of the faults that come in turn, from 0
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed of chance; a fresh one when absent
    #[arg(long)]
    seed: Option<u64>,
    /// Events a second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Nodes, on PostgreSQL and Patroni
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Fill the disk instead (SQLite; needs the right to mount)
    #[arg(long)]
    disk_full: bool,
    /// Judge the evidence an earlier run kept, instead of running
    #[arg(long, value_name = "FOLDER")]
    check: Option<PathBuf>,
    /// The server's binary; next to this one when absent
    #[arg(long, env = "POSTHORN_BIN", value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Keep logs and data; they are always kept when a promise was broken
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = tokio::select! {
        outcome = go(&args) => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(summary)) => {
            print(&summary, args.json);
            if summary.counts.broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn print(summary: &Summary, json: bool) {
    if json {
        let text = serde_json::to_string_pretty(summary).expect("a summary is plain data");
        println!("{text}");
    } else {
        print!("{summary}");
    }
}

/// Whatever ends us, the nodes are killed and the database is stopped as their owners are dropped.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn go(args: &Args) -> anyhow::Result<Option<Summary>> {
    if let Some(folder) = &args.check {
        let evidence = Evidence::read(folder)?;
        let mut summary = Summary::new(checker::check(&evidence), Default::default());
        summary.store = "evidence".to_owned();
        summary.seed = evidence.plan.seed;
        summary.cycles = u64::try_from(evidence.faults.len()).unwrap_or(0);
        return Ok(Some(summary));
    }
    let binary = binary(args)?;
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let folder = tempfile::Builder::new().prefix("posthorn-proof-").tempdir()?;
    if args.store == StoreKind::Patroni
        && let Some(program) = Patroni::missing()
    {
        println!(
            "SKIPPED: `{program}` is not on this machine (apt-get install patroni etcd-server)"
        );
        return Ok(None);
    }
    let cycle_max = if args.store == StoreKind::Patroni { UPHEAVAL_MAX } else { CYCLE_MAX };
    let total = REST_MAX + cycle_max.saturating_mul(u32::try_from(args.cycles).unwrap_or(u32::MAX));
    let outcome = tokio::time::timeout(total, execute(args, binary, seed, folder.path()));
    let mut outcome = outcome.await.context("the run took too long").flatten();
    let broken = match &outcome {
        Ok(summary) => summary.as_ref().is_some_and(|summary| summary.counts.broken > 0),
        Err(_) => true,
    };
    if args.keep || broken {
        let path = folder.keep();
        match &mut outcome {
            Ok(Some(summary)) => summary.evidence = Some(path.display().to_string()),
            _ => eprintln!("what was written is in {}", path.display()),
        }
    }
    outcome
}

async fn execute(
    args: &Args,
    binary: PathBuf,
    seed: u64,
    folder: &Path,
) -> anyhow::Result<Option<Summary>> {
    let folder = folder.to_owned();
    if args.disk_full {
        if args.store != StoreKind::Sqlite {
            bail!("--disk-full is for --store sqlite");
        }
        return Box::pin(disk::run(&disk::Options { binary, seed, folder })).await;
    }
    let options = run::Options {
        binary,
        store: args.store,
        cycles: args.cycles,
        first: args.first,
        seed,
        rate: args.rate,
        nodes: args.nodes.max(1),
        folder,
    };
    Box::pin(run::run(&options)).await.map(Some)
}

fn binary(args: &Args) -> anyhow::Result<PathBuf> {
    let path = match &args.binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("posthorn"),
    };
    path.canonicalize().with_context(|| {
        format!("the server's binary is not at {}: build it first", path.display())
    })
}
