//! `posthorn-bench`: the real binary as a child process, publishers and a sink in this one, all on
//! loopback. Every scenario measures its bare baseline against the same sink in the same run, since
//! absolute figures move with the machine.
//!
//! Publishers and sink speak just enough HTTP/1.1 by hand, so that two cores are spent on the server
//! and not on the load.

#![allow(
    clippy::disallowed_methods,
    reason = "the load speaks to the server that it has just started itself, in the time of this machine"
)]

mod baseline;
mod child;
mod console;
mod figures;
mod history;
mod kept;
mod load;
mod overload;
mod progress;
mod push;
mod report;
mod scenarios;
mod sink;
mod svix;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

/// The load must not be what is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure a posthorn server on this machine
///
/// Every scenario also measures a bare baseline in the same run and prints the ratio. Data goes to stdout,
/// everything else to stderr.
#[derive(Parser, Clone, Debug)]
#[command(name = "posthorn-bench", version, max_term_width = 100)]
struct Args {
    /// What to measure.
    #[arg(value_enum)]
    scenario: Scenario,
    /// The server to measure. Default: the `posthorn` beside this program.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// `sqlite` (a fresh folder, removed afterwards) or a `postgres://` URL of an empty database.
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// A second, empty `postgres://` database, to compare the history with.
    #[arg(long, value_name = "URL")]
    empty_store: Option<String>,
    /// How long each phase measures.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Publishers at once.
    #[arg(long, default_value_t = 256)]
    publishers: usize,
    /// Subscriptions the load is spread over; each event goes to one (overload: to all).
    #[arg(long, default_value_t = 16)]
    subscriptions: usize,
    /// Payload size in bytes.
    #[arg(long, default_value_t = 1024)]
    payload: usize,
    /// Events in one batch publish.
    #[arg(long, default_value_t = 250)]
    batch: usize,
    /// Pending deliveries in the backlog, restart and dead-neighbour scenarios.
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u64,
    /// Events in the history and console scenarios; a tenth of them wait.
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// Who the dead neighbours are: one that hangs, or a hundred that fail at once.
    #[arg(long, value_enum, default_value_t = Neighbours::Hanging)]
    neighbours: Neighbours,
    /// Hostile receivers in the hostile scenario, spread over every mode there is.
    #[arg(long, default_value_t = 1_000)]
    hostile: usize,
    /// Events per second for the healthy receivers in the hostile scenario; messages per second when their answers are timed in
    /// the svix scenario.
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Idle connections in the sockets scenario.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Connected agents in the push scenario.
    #[arg(long, default_value_t = 64)]
    agents: usize,
    /// Bytes of a message's body in the push scenario.
    #[arg(long, default_value_t = 1_000)]
    body: usize,
    /// How senders of the push scenario show who they are.
    #[arg(long, value_enum, default_value_t = VapidForm::V2)]
    vapid: VapidForm,
    /// Applications in the svix scenario, each with three endpoints.
    #[arg(long, default_value_t = 10_000)]
    applications: usize,
    /// A setting of the server in the sockets, push and svix scenarios, like push.direct=stored.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where the embedded store puts its data; a folder below it is made and removed.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A folder that keeps the history for the next run of the scenarios history and console.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// One JSON object on stdout instead of a table.
    #[arg(long)]
    json: bool,
    /// Only for the `relay` scenario: where to forward to.
    #[arg(long, hide = true)]
    sink: Option<std::net::SocketAddr>,
}

/// What to measure.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Single publishes, end to end.
    Throughput,
    /// Batch publishes, end to end.
    Batch,
    /// Publish to the receiver's first byte, at half load.
    Latency,
    /// Throughput of the healthy beside dead receivers with a large backlog (`--neighbours`).
    DeadNeighbour,
    /// Memory with a large backlog.
    Backlog,
    /// Kill and restart with a large backlog, to the first delivery.
    Restart,
    /// Ten times the publishes that can be served: what is served, and how the rest is refused.
    Overload,
    /// Latency of the healthy beside many hostile receivers, and what those cost the server.
    Hostile,
    /// Lists, filters, counts and publishing with a long history.
    History,
    /// Pages of the console over a long history, and what tabs cost that stay open.
    Console,
    /// Memory of idle WebSockets, and how fast they are opened.
    Sockets,
    /// Web Push: messages to agents who are connected, away, and back.
    Push,
    /// The Svix API: messages next to events of the native API, and many applications.
    Svix,
    /// The bare relay that throughput is compared with (used by the other scenarios).
    #[value(hide = true)]
    Relay,
    /// The hostile receivers (used by the hostile scenario).
    #[value(hide = true)]
    HostileFleet,
    /// A bare WebSocket server (used by the sockets scenario).
    #[value(hide = true)]
    BareSockets,
    /// The same with a way to send to its sockets (used by the push scenario).
    #[value(hide = true)]
    BarePush,
}

/// The dead neighbours of the healthy.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    /// One that accepts connections and never answers.
    Hanging,
    /// A hundred that answer 500 at once.
    Failing,
    /// A hundred that refuse connections.
    Refusing,
}

/// How senders show who they are.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum VapidForm {
    /// Every endpoint is bound to a sender's key, and every message proves it (RFC 8292).
    V2,
    /// Endpoints for anybody.
    None,
}

impl VapidForm {
    const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::None => "none",
        }
    }
}

impl Args {
    fn phase(&self) -> Duration {
        Duration::from_secs(self.seconds.max(1))
    }

    fn server_binary(&self) -> anyhow::Result<PathBuf> {
        let beside = || Ok(std::env::current_exe()?.with_file_name("posthorn"));
        let file = self.binary.clone().map_or_else(beside, anyhow::Ok)?;
        let file = file.canonicalize().with_context(|| {
            let hint =
                "build it (cargo build --release -p posthorn-server) or name it with --binary";
            format!("there is no server at {}; {hint}", file.display())
        })?;
        Ok(file)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    match args.scenario {
        Scenario::Relay => baseline::relay(args.sink.context("relay needs --sink")?).await?,
        Scenario::HostileFleet => scenarios::hostile::run_fleet().await?,
        Scenario::BareSockets => push::serve_bare(false).await?,
        Scenario::BarePush => push::serve_bare(true).await?,
        Scenario::Sockets | Scenario::Push => push::run(&args).await?,
        Scenario::Svix => svix::run(&args).await?,
        Scenario::History => {
            let (bench, home) = (scenarios::Bench::new(&args).await?, child::Home::new(&args)?);
            history::run(&args, bench, home).await?;
        }
        Scenario::Console => {
            let (bench, home) = (scenarios::Bench::new(&args).await?, child::Home::new(&args)?);
            console::run(&args, bench, home).await?;
        }
        _ => report::print(&scenarios::run(&args).await?, args.json),
    }
    Ok(())
}
