//! What an idle socket costs: each agent has said hello and has one channel.

use std::time::Duration;

use posthorn_agent::{Agent, Options};
use serde::Serialize;

use super::fleet::{self, Connected};
use super::{check_descriptors, home, store_name, url};
use crate::Args;
use crate::child::Server;
use crate::progress::say;

/// Connections that are there before memory is measured the first time: pools, caches and the
/// statements of the store are not what a socket costs.
const WARM_UP: usize = 256;
/// For buffers of handshakes to be given back; shorter when a phase is.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    scenario: &'static str,
    store: &'static str,
    connections: usize,
    /// Growth of the server's resident memory by each connection.
    bytes_per_connection: f64,
    /// The same for the bare server.
    bare_bytes_per_connection: f64,
    memory_ratio: f64,
    /// Connected, upgraded and greeted, per second.
    opens_per_s: f64,
    bare_opens_per_s: f64,
    opens_ratio: f64,
    /// First channels of agents made per second: each is stored.
    registers_per_s: f64,
    bare_registers_per_s: f64,
    /// Sockets that the server had closed by the end of the run.
    closed: usize,
    rss_before_mib: f64,
    rss_after_mib: f64,
    floor: Marks,
    goal: Marks,
}

/// What is wanted, with 10,000 connections.
#[derive(Debug, Default, Serialize)]
struct Marks {
    bytes_per_connection: f64,
}

impl Report {
    /// Promises that were not kept. Memory is none: allocators and kernels differ.
    pub(super) fn broken(&self) -> Vec<String> {
        match self.closed {
            0 => Vec::new(),
            closed => vec![format!("the server closed {closed} idle sockets")],
        }
    }
}

struct Cost {
    bytes: f64,
    opens_per_s: f64,
    registers_per_s: f64,
    closed: usize,
    before_mib: f64,
    after_mib: f64,
}

impl Cost {
    /// The better of two runs in each figure that others are compared with.
    fn or_better(self, other: &Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            opens_per_s: self.opens_per_s.max(other.opens_per_s),
            registers_per_s: self.registers_per_s.max(other.registers_per_s),
            ..self
        }
    }
}

pub(super) async fn run(args: &Args) -> anyhow::Result<Report> {
    check_descriptors(args.connections + WARM_UP)?;
    // Before and after, since whatever is measured first pays for what this process and the kernel
    // do for the first time.
    say("measuring the bare server");
    let first = measure(args, Server::bare_sockets(false).await?).await?;
    say("measuring the server");
    let mut home = home(args)?;
    let server = home.start().await?;
    let ours = measure(args, server).await?;
    say("measuring the bare server again");
    let bare = first.or_better(&measure(args, Server::bare_sockets(false).await?).await?);
    Ok(Report {
        scenario: "sockets",
        store: store_name(args),
        connections: args.connections,
        bytes_per_connection: ours.bytes,
        bare_bytes_per_connection: bare.bytes,
        memory_ratio: ours.bytes / bare.bytes.max(1.0),
        opens_per_s: ours.opens_per_s,
        bare_opens_per_s: bare.opens_per_s,
        opens_ratio: ours.opens_per_s / bare.opens_per_s.max(1.0),
        registers_per_s: ours.registers_per_s,
        bare_registers_per_s: bare.registers_per_s,
        closed: ours.closed,
        rss_before_mib: ours.before_mib,
        rss_after_mib: ours.after_mib,
        floor: Marks { bytes_per_connection: 10.0 * 1_024.0 },
        goal: Marks { bytes_per_connection: 6.5 * 1_024.0 },
    })
}

async fn measure(args: &Args, server: Server) -> anyhow::Result<Cost> {
    // Half a minute: an opening must wait for its turn, not fail.
    let options = Options { patience: Duration::from_secs(30), ..Options::default() };
    let (address, settle) = (url(&server), args.phase().min(SETTLE_MAX));
    let (warm, _) = fleet::open(&address, &options, vec![None; WARM_UP]).await?;
    let (warm, _) = fleet::register(warm, &[]).await?;
    tokio::time::sleep(settle).await;
    let before_mib = server.rss_mib();
    let (agents, opens_per_s) =
        fleet::open(&address, &options, vec![None; args.connections]).await?;
    let (agents, registers_per_s) = fleet::register(agents, &[]).await?;
    tokio::time::sleep(settle).await;
    let after_mib = server.rss_mib();
    let mut agents: Vec<Agent> =
        agents.into_iter().chain(warm).map(|(Connected { agent, .. }, _)| agent).collect();
    // Whoever was closed has that to tell; the others have nothing.
    let closed = agents.iter_mut().filter_map(Agent::ready).count();
    server.kill().await?;
    Ok(Cost {
        bytes: (after_mib - before_mib) * 1_048_576.0 / args.connections.max(1) as f64,
        opens_per_s,
        registers_per_s,
        closed,
        before_mib,
        after_mib,
    })
}
