//! `posthorn import`: taking things over from a server of another system.

mod patience;
mod svix;

use crate::client::Access;

/// Take things over from a server of another system
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Take over applications, endpoints with their secrets and headers, and event types of a running Svix server
    ///
    /// Only reads there. Former ids and uids go on working here, and messages are signed with the former secrets. Running it again
    /// makes nothing twice and goes on where it was stopped. What is there already stays as it is, unless --update is given. What
    /// has no counterpart is listed. Needs an operator key.
    Svix(Box<svix::Args>),
}

/// Runs it.
pub async fn run(access: &Access, json: bool, command: &Command) -> anyhow::Result<()> {
    let Command::Svix(args) = command;
    svix::run(access, json, args).await
}
