//! Web Push: what idle sockets cost, and how fast messages go through.
//!
//! Agents and senders are in this process, the server in another, and so is the bare server that
//! the figures are compared with: sockets and a table of them, without a store, tokens or promises.

mod bare;
mod fleet;
mod messages;
mod sockets;

use anyhow::{Context, bail};

use super::child::{Home, Server};
use super::{Args, Scenario};

pub(crate) use bare::serve as serve_bare;

/// Descriptors that are not sockets of agents.
const OTHER_DESCRIPTORS: usize = 600;

/// Runs one of the two scenarios and prints what it found. An error when a promise was not kept.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let broken = match args.scenario {
        Scenario::Sockets => {
            let report = sockets::run(args).await?;
            super::report::print(&report, args.json);
            report.broken()
        }
        Scenario::Push => {
            let report = messages::run(args).await?;
            super::report::print(&report, args.json);
            report.broken()
        }
        other => bail!("{other:?} is not about Web Push"),
    };
    if !broken.is_empty() {
        bail!("{}", broken.join(", "));
    }
    Ok(())
}

/// A server with Web Push, and without the brakes that protect it from a herd.
fn home(args: &Args) -> anyhow::Result<Home> {
    let mut home = Home::new(args)?;
    let mut settings = vec![
        "push.enabled=true",
        "push.opens_per_second=1000000",
        "push.frames_per_second=1000000",
        "push.stored_max=0",
        "server.connections=2000",
        "egress.connections=256",
        "server.connections_per_address=0",
        "push.connections=16500",
        "push.connections_per_address=0",
    ];
    if args.store != "sqlite" {
        settings.push("push.internal.listen=127.0.0.1:0");
    }
    home.set(settings.into_iter().map(str::to_owned));
    home.set(args.set.iter().cloned());
    Ok(home)
}

/// The address that agents connect to.
fn url(server: &Server) -> String {
    format!("ws://{}/", server.address)
}

/// Fails early when the system does not let this process or its child hold so many sockets.
fn check_descriptors(connections: usize) -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits").context("reading the limits")?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let allowed = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    let allowed = allowed.unwrap_or(usize::MAX);
    if connections + OTHER_DESCRIPTORS > allowed {
        bail!(
            "{connections} connections need more than {allowed} descriptors: raise the limit with \
             `ulimit -n`, or choose fewer with --connections"
        );
    }
    Ok(())
}

fn store_name(args: &Args) -> &'static str {
    if args.store == "sqlite" { "sqlite" } else { "postgres" }
}
