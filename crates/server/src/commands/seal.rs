//! `posthorn seal`: the key that seals secrets at rest.

mod rotate;

use std::path::PathBuf;

use posthorn_sealing::vault::VaultKey;

pub(super) use rotate::present;

use super::Context;
use super::new_key::{NewKey, To};
use crate::client::Access;

/// Create and rotate the key that seals secrets at rest
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Create a seal key, for seal.key of the configuration; needs no server
    Create(To),
    /// Change the seal key while the server runs
    ///
    /// Three steps, each of which may be repeated or be cut short: `--begin FILE` puts a new key in
    /// front of the old one; then the server is started anew; `--finish FILE` seals everything anew,
    /// checks it, and takes the old key out. Without either, everything is sealed anew.
    Rotate {
        /// The file of the key, e.g. posthorn-data/seal.key: put a new key first; needs no server
        #[arg(long, value_name = "FILE", conflicts_with = "finish")]
        begin: Option<PathBuf>,
        /// The same file: seal everything anew, and move the old key to FILE.former
        #[arg(long, value_name = "FILE")]
        finish: Option<PathBuf>,
    },
}

/// Runs it.
pub async fn run(access: &Access, json: bool, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Create(to) => {
            let text = VaultKey::generate().to_text();
            NewKey::secret(text, "seal: {key: file:FILE}").give(to, json)
        }
        Command::Rotate { begin: Some(file), .. } => rotate::begin(file),
        Command::Rotate { finish, .. } => {
            rotate::run(&Context::new(access, json)?, finish.as_deref()).await
        }
    }
}
