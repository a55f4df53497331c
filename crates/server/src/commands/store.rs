//! `posthorn store`: what concerns a store as a whole; needs no server.

mod probe;

/// Try a database before it is used
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Try every statement on a database
    Probe(probe::Args),
}

/// Runs it.
pub async fn run(json: bool, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Probe(args) => probe::run(args, json).await,
    }
}
