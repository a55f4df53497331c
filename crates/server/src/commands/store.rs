//! `posthorn store`: what concerns a store as a whole; needs no server.

mod copy;
mod probe;

/// Copy a store to another database, try a database before it is used
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Copy a whole store into an empty one
    Copy(Box<copy::Args>),
    /// Try every statement on a database
    Probe(probe::Args),
}

/// Runs it.
pub async fn run(command: &Command, json: bool) -> anyhow::Result<()> {
    match command {
        Command::Copy(args) => copy::run(args, json).await,
        Command::Probe(args) => probe::run(args, json).await,
    }
}
