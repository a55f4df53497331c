//! `posthorn store`: what is done to a store as a whole, without a server.

mod copy;

/// Copy a store to another database
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Copy a whole store into an empty one
    Copy(copy::Args),
}

/// Runs it.
pub async fn run(command: &Command, json: bool) -> anyhow::Result<()> {
    match command {
        Command::Copy(args) => copy::run(args, json).await,
    }
}
